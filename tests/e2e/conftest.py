"""Fixtures of the end-to-end tests: real processes on free ports, gone when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from processes import BrokerProcess, DevCluster, DevProcess
from zookeeper_process import ZooKeeperProcess


@pytest.fixture(scope="session", autouse=True)
def spool_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where producers of the tests, and of the processes that they start, leave what is for the next one."""
    folder = tmp_path_factory.mktemp("spool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_SPOOL", str(folder))
        yield folder


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """What clusters share that leave their ZooKeeper alone: a JVM costs more than all else of a small cluster."""
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    yield process
    process.end()


@pytest.fixture
def dev_cluster(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[Callable[..., DevCluster]]:
    """`dev_cluster(brokers=1, set={…}, data=PATH)` starts brokers with the settings of `headrace dev`."""
    running: list[DevCluster] = []

    def start(
        *,
        brokers: int = 1,
        set: Mapping[str, str] | None = None,
        data: Path | None = None,
        listen: str = "127.0.0.1:0",
    ) -> DevCluster:
        home = data or tmp_path / f"dev-{len(running)}"
        place = zookeeper.under_chroot(home)
        cluster = DevCluster(home, brokers=brokers, set=set, listen=listen, zookeeper=place)
        running.append(cluster)
        return cluster

    yield start
    for cluster in running:
        cluster.end()


@pytest.fixture
def dev_process(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[Callable[..., DevProcess]]:
    """`dev_process(brokers=1, data=PATH)` starts a `headrace dev`; with `own_zookeeper` as people do."""
    running: list[DevProcess] = []

    def start(*, brokers: int = 1, data: Path | None = None, own_zookeeper: bool = False) -> DevProcess:
        home = data or tmp_path / f"dev-process-{len(running)}"
        place = None if own_zookeeper else zookeeper.under_chroot(home)
        process = DevProcess(home, brokers=brokers, zookeeper=place)
        running.append(process)
        return process

    yield start
    for process in running:
        process.end()


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
def broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[DevCluster]:
    """One broker shared by the tests of a module; use topics of your own."""
    home = tmp_path_factory.mktemp("broker") / "data"
    cluster = DevCluster(home, zookeeper=zookeeper.under_chroot(home))
    yield cluster
    cluster.end()
