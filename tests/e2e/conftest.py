"""Fixtures of the end-to-end tests: real processes on free ports, gone when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from processes import BrokerProcess, DevCluster


@pytest.fixture
def dev_cluster(tmp_path: Path) -> Iterator[Callable[..., DevCluster]]:
    """`dev_cluster(brokers=1, set={…}, data=PATH)` starts a `headrace dev` and gives its DevCluster."""
    running: list[DevCluster] = []

    def start(
        *,
        brokers: int = 1,
        set: Mapping[str, str] | None = None,
        data: Path | None = None,
        listen: str = "127.0.0.1:0",
        zookeeper: str | None = None,
    ) -> DevCluster:
        home = data or tmp_path / f"dev-{len(running)}"
        cluster = DevCluster(home, brokers=brokers, set=set, listen=listen, zookeeper=zookeeper)
        running.append(cluster)
        return cluster

    yield start
    for cluster in running:
        cluster.end()


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """`broker_process(broker_id=…, zookeeper=…)` starts one `headrace broker`; same id, same data directory."""
    running: list[BrokerProcess] = []

    def start(*, broker_id: int, zookeeper: str, set: Mapping[str, str] | None = None) -> BrokerProcess:
        home = tmp_path / f"broker-{broker_id}"
        broker = BrokerProcess(home, broker_id=broker_id, zookeeper=zookeeper, set=set)
        running.append(broker)
        return broker

    yield start
    for broker in reversed(running):
        broker.end()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """One broker shared by the tests of a module; use topics of your own."""
    cluster = DevCluster(tmp_path_factory.mktemp("broker") / "data")
    yield cluster
    cluster.end()
