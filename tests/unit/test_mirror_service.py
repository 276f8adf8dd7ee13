"""The mirror of one broker around its copiers: whose partitions it holds on to, and what it writes of them."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from headrace.broker.errors import StorageError
from headrace.mirror import arrivals
from headrace.mirror.arrivals import Arrival
from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.journal import Journal
from headrace.mirror.service import Mirror
from headrace.mirror.source import Source


class Partition:
    """A led target partition of an empty log."""

    topic_id = UUID(int=9)

    def __init__(self, topic: str, number: int) -> None:
        self.topic, self.partition = topic, number
        self.log = SimpleNamespace(log_start_offset=0, log_end_offset=0)


class Written:
    """A topic of the journal: what was appended, as far as `check` lets it."""

    partitions: tuple[Any, ...] = ()

    def __init__(self, check: Callable[[list[Any]], None] = lambda pairs: None) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []
        self.check = check

    def append(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.check(pairs)
        self.pairs += pairs


def journal(written: Written) -> Journal:
    return Journal(*(cast("Any", topic) for topic in (written, Written(), Written(), Written())))


def test_a_partition_that_is_gone_is_let_go_of_with_its_files() -> None:
    led = [Partition("dc-east.events", number) for number in range(2)]
    host = SimpleNamespace(
        led=lambda: list(led),
        clock=SimpleNamespace(now_ms=lambda: 0, monotonic_ms=lambda: 0),
        broker_id=0,
        registry=CollectorRegistry(),
    )
    config = SourceConfig(name="dc-east", bootstrap_servers=(("h", 1),), topics=re.compile(".*"))
    source = Source(config, Tunables(), host.clock, cast("Any", None), "id", lambda now_ms: None)
    mirror = Mirror(cast("Any", host), journal(Written()))
    mirror.sources.append(source)
    assert mirror._reconcile(source)
    assert source.copiers.keys() == {("events", 0), ("events", 1)}
    gone = weakref.ref(led.pop())
    mirror._reconcile(source)
    assert source.copiers.keys() == {("events", 0)}
    gc.collect()
    assert gone() is None


def test_arrivals_are_written_in_batches_that_fit_the_topic() -> None:
    written = Written()
    noted = journal(written)
    sizes: list[int] = []
    written.check = lambda pairs: sizes.append(sum(len(key) + len(value) for key, value in pairs))
    count = 20_000
    for number in range(count):
        noted.arrived(cast("Any", Partition("dc-east." + "t" * 100, number)), Arrival(0, 9, 1))
    noted.flush(1)
    assert len(written.pairs) == 2 * count, "each, and how far each is recorded"
    assert max(sizes) < 900_000
    assert arrivals.decode(written.pairs[-1][1]) == Arrival(10, 9, 1)


def test_what_a_full_disk_refused_is_written_once_there_is_room() -> None:
    written = Written()
    noted = journal(written)
    for number in range(3 * arrivals.BATCH_COUNT_MAX // 2):
        noted.arrived(cast("Any", Partition("dc-east.t", number)), Arrival(0, 9, 1))

    def full_after_one(pairs: list[Any]) -> None:
        if written.pairs:
            raise StorageError("no space left on device")

    written.check = full_after_one
    with pytest.raises(StorageError):
        noted.flush(1)
    written.check = lambda pairs: None
    noted.flush(1)
    assert len({key for key, _ in written.pairs}) == len(written.pairs) == 3 * arrivals.BATCH_COUNT_MAX // 2
