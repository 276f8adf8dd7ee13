"""Fixtures of the conformance tests: Apache Kafka, and headrace beside it, asked the same questions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pairs import running_pair
from recording import pytest_runtest_makereport, recorded
from sessions import Pair
from zookeeper_process import ZooKeeperProcess

from bench.apache_kafka import NoKafkaError, find_jars

__all__ = ["pytest_runtest_makereport", "recorded"]

PAIR = pytest.StashKey[ExitStack]()

# Its assertions then tell what they compared.
pytest.register_assert_rewrite("swapped_broker", "swapped_life")


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars."""
    try:
        return find_jars()
    except NoKafkaError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """What pairs share, each of them under a chroot."""
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    yield process
    process.end()


@pytest.fixture(scope="session")
def pair(
    kafka_jars: Path,
    zookeeper: ZooKeeperProcess,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Pair]:
    """One broker of each kind with the same configuration, shared by all tests: use topics and groups of your own.

    Its tests follow each other, and it ends with the last of them.
    """
    with ExitStack() as stack:
        both = stack.enter_context(running_pair(kafka_jars, zookeeper, tmp_path_factory.mktemp("pair")))
        request.session.stash[PAIR] = stack
        both.wait_for_coordinator()
        yield both


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the pair after its last test: two brokers that nobody asks cost as much as many a test that follows."""
    if PAIR in item.session.stash and "pair" not in getattr(nextitem, "fixturenames", ()):
        item.session.stash[PAIR].close()


@pytest.fixture
def own_pair(kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Pair]:
    """A pair for one test, which may change the brokers themselves."""
    with running_pair(kafka_jars, zookeeper, tmp_path) as both:
        yield both
