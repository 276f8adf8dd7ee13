"""The mirror of one broker around its copiers: whose partitions it holds on to, and what it writes of them."""

from __future__ import annotations

import asyncio
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
from headrace.mirror.reports import Report
from headrace.mirror.service import Mirror
from headrace.mirror.source import Source
from headrace.mirror.state import State
from headrace.mirror.targets import Targets


class Partition:
    """A led target partition of an empty log."""

    topic_id = UUID(int=9)

    def __init__(self, topic: str, number: int) -> None:
        self.topic, self.partition = topic, number
        self.log = SimpleNamespace(log_start_offset=0, log_end_offset=0, is_mirror_copy=True)


class Written:
    """A topic of the journal: what was appended, as far as `check` lets it."""

    partitions: tuple[Any, ...] = ()

    def __init__(self, check: Callable[[list[Any]], None] = lambda pairs: None) -> None:
        self.pairs: list[Any] = []
        self.check = check

    def append(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.check(pairs)
        self.pairs += pairs


def journal(written: Written) -> Journal:
    return Journal(*(cast("Any", topic) for topic in (written, Written(), Written(), Written())))


def mirror_of(
    led: list[Partition], configs: dict[str, dict[str, str]] | None = None
) -> tuple[Mirror, Source]:
    """The mirror of a broker that leads these, and its only source; `configs` are overrides by topic."""
    host = SimpleNamespace(
        led=lambda: list(led),
        clock=SimpleNamespace(now_ms=lambda: 0, monotonic_ms=lambda: 0),
        broker_id=0,
        configurations=SimpleNamespace(of_topic=lambda name: (configs or {}).get(name, {})),
        registry=CollectorRegistry(),
    )
    source = Source(
        SourceConfig(name="dc-east", bootstrap_servers=(("h", 1),), topics=re.compile(".*")),
        Tunables(),
        host.clock,
        cast("Any", None),
        "id",
        lambda now_ms: None,
        own_cluster="OWN",
        is_here=lambda name: False,
    )
    mirror = Mirror(cast("Any", host), journal(Written()))
    mirror.sources.append(source)
    return mirror, source


def test_a_partition_that_is_gone_is_let_go_of_with_its_files() -> None:
    led = [Partition("dc-east.events", number) for number in range(2)]
    mirror, source = mirror_of(led)
    assert mirror._reconcile(source)
    assert source.copiers.keys() == {("events", 0), ("events", 1)}
    gone = weakref.ref(led.pop())
    mirror._reconcile(source)
    assert source.copiers.keys() == {("events", 0)}
    gc.collect()
    assert gone() is None


def test_nothing_is_copied_to_a_topic_that_is_no_copy_or_whose_source_is_refused() -> None:
    led = [Partition(f"dc-east.{name}", 0) for name in ("copied", "foreign", "refused")]
    led[1].log.is_mirror_copy = False
    mirror, source = mirror_of(led)
    source.refused = {"refused": "it is a copy that came from this cluster"}
    mirror._reconcile(source)
    assert source.copiers.keys() == {("copied", 0)}


def test_a_promoted_copy_is_forgotten_and_copied_to_no_more() -> None:
    (partition,) = led = [Partition("dc-east.failing", 0)]
    configs: dict[str, dict[str, str]] = {}
    mirror, source = mirror_of(led, configs)
    mirror._reconcile(source)
    mirror.journal.save(cast("Any", partition), State(target_id=partition.topic_id))
    assert mirror.journal.remembers(cast("Any", partition))
    partition.log.is_mirror_copy = False
    configs["dc-east.failing"] = {"headrace.mirror.clusters": ""}
    mirror._reconcile(source)
    assert source.copiers == {}
    assert not mirror.journal.remembers(cast("Any", partition))
    states = cast("Written", mirror.journal._states)
    assert states.pairs[-1] == (b"dc-east.failing-0", None)
    written = len(states.pairs)
    mirror._reconcile(source)
    assert len(states.pairs) == written


@pytest.mark.parametrize(
    ("state", "end", "is_remembered"),
    [
        ({"epochs": ((3, 0),)}, 10, True),
        ({"resumed_at": 10}, 10, True),
        ({}, 0, True),
        ({}, 10, False),
        ({"epochs": ((3, 0),), "target_id": UUID(int=1)}, 10, False),
    ],
)
def test_a_topic_is_remembered_that_was_copied_to(
    state: dict[str, Any], end: int, is_remembered: bool
) -> None:
    partition = Partition("dc-east.t", 0)
    partition.log.log_end_offset = end
    noted = journal(Written())
    assert not noted.remembers(cast("Any", partition))
    noted.save(cast("Any", partition), State(**{"target_id": partition.topic_id, **state}))
    assert noted.remembers(cast("Any", partition)) is is_remembered


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


def test_a_source_that_answered_is_told_before_anything_of_it_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror, source = mirror_of([Partition("dc-east.events", 0)])
    told: list[tuple[int | None, int]] = []

    async def refresh() -> bool:
        source.heard(7)
        return True

    async def ended(_: Source) -> None:
        raise EOFError

    def tell(report: Report) -> None:
        told.append((report.sources[0].answered_ms, len(source.copiers)))

    monkeypatch.setattr(source, "refresh", refresh)
    monkeypatch.setattr(mirror.journal, "tell", tell)
    monkeypatch.setattr(Targets, "keep_in_step", staticmethod(ended))
    with pytest.raises(EOFError):
        asyncio.run(mirror.follow(source))
    assert told == [(7, 0)]
