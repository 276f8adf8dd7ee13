"""What a load says of its rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from load_kit import load, offsets_in
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.registry_address import RegistryAddress
from headrace.load import commit, expiry, tables
from headrace.load.driver import LoadConfig, Loader
from headrace.load.leftovers import Run
from headrace.load.tables import WarehouseError


@pytest.fixture
def loader(catalog: Catalog) -> Iterator[Loader]:
    config = LoadConfig(
        bootstrap=Bootstrap("h:1"),
        registry=RegistryAddress("http://h:2"),
        task_count_max=1,
        wanted=lambda _: True,
    )
    found = Loader(catalog, config, lambda _: [])
    yield found
    found.close()


def let_there_be(loader: Loader, monkeypatch: pytest.MonkeyPatch, *topics: str) -> None:
    """Let the cluster have topics of a partition each."""

    def partitions(_: Callable[[str], bool]) -> list[TopicPartition]:
        return [TopicPartition(topic, 0) for topic in topics]

    monkeypatch.setattr(loader._client, "partitions", partitions)


def test_a_load_without_a_topic_says_so_once(
    loader: Loader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    let_there_be(loader, monkeypatch)
    for _ in range(2):
        assert not loader.round().moved
    assert caplog.text.count("no topic of the cluster matches") == 1


def test_a_table_that_cannot_be_used_is_left_out_and_the_others_are_loaded(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_there_be(loader, monkeypatch, "dc-east.orders", "dc-east.views")
    settled: list[str] = []

    def settle(_: Catalog, name: str) -> Table:
        settled.append(name)
        if name == "orders":
            raise WarehouseError("warehouse.orders has no snapshot left")
        raise commit.RefusedError("it changed")

    monkeypatch.setattr(commit, "settle", settle)
    report = loader.round()
    assert settled == ["orders", "views"]
    assert (report.failures, report.refused) == (["warehouse.orders has no snapshot left"], 1)


def test_runs_that_commit_once_expire_snapshots_as_well(loader: Loader, catalog: Catalog, run: Run) -> None:
    count = expiry.NEWEST_KEPT + expiry.EVERY_COMMITS - 1
    for number in range(count):
        load(catalog, run, number, number + 1)
    loader._tidy("pageviews")
    assert len(tables.load_table(catalog, "pageviews").snapshots()) == count
    for number in range(count, count + 5):
        load(catalog, run, number, number + 1)
    loader._commits_since_expiry.clear()
    loader._tidy("pageviews")
    assert len(tables.load_table(catalog, "pageviews").snapshots()) <= expiry.NEWEST_KEPT + 3
    assert offsets_in(catalog, "pageviews") == list(range(count + 5))
