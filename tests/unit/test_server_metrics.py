"""The metrics page: what its address may be, and that it is put together beside a broker at work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.config import ConfigurationError
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.metrics import BrokerMetrics, serve_metrics
from headrace.broker.server.replicas import Partitions


@pytest.mark.parametrize("listener", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"])
def test_an_address_that_is_none_is_refused_in_a_sentence(listener: str) -> None:
    with pytest.raises(ConfigurationError, match=r"headrace\.metrics\.listener"):
        serve_metrics(BrokerMetrics(), listener)


def test_partitions_may_come_while_the_page_is_made() -> None:
    """The page is made in a thread of its own."""
    partitions = Partitions(1, cast("Any", None), MetadataCache(), cast("Any", None), lambda _: None)

    class Led(SimpleNamespace):
        @property
        def is_leader(self) -> bool:
            partitions._partitions["new", len(partitions._partitions)] = cast("Any", self)
            return True

    partitions._partitions["old", 0] = cast("Any", Led())
    assert len(list(partitions.led())) == 1
