"""What a load says of its rounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.catalog import Catalog

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.registry_address import RegistryAddress
from headrace.load.driver import LoadConfig, Loader


def test_a_load_without_a_topic_says_so_once(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def partitions(wanted: Callable[[str], bool]) -> list[TopicPartition]:
        return []

    config = LoadConfig(
        bootstrap=Bootstrap("h:1"),
        registry=RegistryAddress("http://h:2"),
        task_count_max=1,
        wanted=lambda _: False,
    )
    loader = Loader(catalog, config, lambda _: [])
    monkeypatch.setattr(loader._client, "partitions", partitions)
    for _ in range(2):
        assert not loader.round().moved
    loader.close()
    assert caplog.text.count("no topic of the cluster matches") == 1
