"""The mirror of one broker around its copiers: whose partitions it holds on to, and what it writes of them."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from mirror_kit import LedPartition, SharedTopic
from prometheus_client import CollectorRegistry

from headrace.broker.config.copies import MIRROR_REMOTE
from headrace.broker.errors import StorageError
from headrace.mirror import service
from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.memory.arrival_log import ArrivalLog
from headrace.mirror.memory.journal import Journal
from headrace.mirror.memory.orders import encode_topics
from headrace.mirror.memory.reports import Report
from headrace.mirror.memory.state import RESTORE, RestoreOrder, State, encode_restore, key_of, state_key
from headrace.mirror.restorer import RETRY_SECONDS
from headrace.mirror.restoring import NEEDS_CUT
from headrace.mirror.service import Mirror
from headrace.mirror.source import Source
from headrace.mirror.targets import Targets


def mirror_of(
    led: list[LedPartition], configs: dict[str, dict[str, str]] | None = None
) -> tuple[Mirror, Source]:
    """The mirror of a broker that leads these, and its only source; `configs` are overrides by topic."""
    states = SharedTopic()
    host = SimpleNamespace(
        led=lambda: [partition for partition in led if partition.is_leader],
        on_change=lambda callback: lambda: None,
        clock=SimpleNamespace(now_ms=lambda: 0, monotonic_ms=lambda: 0),
        broker_id=0,
        configurations=SimpleNamespace(
            of_topic=lambda name: (configs or {}).get(name, {}),
            remote_topics=lambda: {
                topic: found[MIRROR_REMOTE]
                for topic, found in (configs or {}).items()
                if MIRROR_REMOTE in found
            },
        ),
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
    journal = Journal(states, SharedTopic(), SharedTopic())
    states.followers.append(journal)
    mirror = Mirror(cast("Any", host), journal, ArrivalLog(SharedTopic()))
    mirror.sources.append(source)
    return mirror, source


@pytest.fixture(autouse=True)
def unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs without files changed last at no time."""
    monkeypatch.setattr(service, "changed_ms", lambda log: 0)


def states_of(mirror: Mirror) -> SharedTopic:
    return cast("SharedTopic", mirror.journal._states_topic)


def test_a_partition_that_is_gone_is_let_go_of_with_its_files() -> None:
    led = [LedPartition("dc-east.events", number) for number in range(2)]
    mirror, source = mirror_of(led)
    mirror._reconcile(source)
    assert source.copiers.keys() == {("events", 0), ("events", 1)}
    gone = weakref.ref(led.pop())
    mirror._reconcile(source)
    assert source.copiers.keys() == {("events", 0)}
    gc.collect()
    assert gone() is None


def test_nothing_is_copied_to_a_topic_that_is_no_copy_or_whose_source_is_refused() -> None:
    led = [LedPartition(f"dc-east.{name}", 0) for name in ("copied", "foreign", "refused")]
    led[1].log.is_mirror_copy = False
    mirror, source = mirror_of(led)
    source.refused = {"refused": "it is a copy that came from this cluster"}
    mirror._reconcile(source)
    assert source.copiers.keys() == {("copied", 0)}


def test_a_topic_is_copied_to_under_the_name_that_it_is_configured_with() -> None:
    led = [LedPartition(name, 0) for name in ("orders", "dc-east.east.orders", "dc-east.other", "own")]
    configs = {"orders": {MIRROR_REMOTE: "dc-east.east.orders"}, "own": {MIRROR_REMOTE: "dc-west.own"}}
    mirror, source = mirror_of(led, configs)
    source.config = replace(source.config, topics=re.compile("other"))
    mirror._choose(source)
    mirror._reconcile(source)
    assert source.copiers.keys() == {("east.orders", 0), ("other", 0)}
    assert mirror._leads["dc-east", ("east.orders", 0)].partition.topic == "orders"
    assert [source.copy_of(topic) for topic in ("east.orders", "other")] == ["orders", "dc-east.other"]
    assert [source._is_wanted(topic) for topic in ("east.orders", "other", "more", "__own")] == [
        True,
        True,
        False,
        False,
    ]
    del configs["orders"]
    assert mirror._choose(source)
    mirror._reconcile(source)
    assert source.copiers.keys() == {("other", 0)}, (
        "neither its name nor its configuration says that it is a copy"
    )


def test_what_is_a_copy_here_and_was_one_there_is_looked_at_anew() -> None:
    led = [LedPartition("dc-east.events", 0)]
    mirror, source = mirror_of(led)
    known = {(name, UUID(int=1)): (0, {"headrace.mirror.clusters": "OWN"}) for name in ("events", "others")}
    source._configs = dict(known)
    source.refused = {"events": "it is a copy that came from this cluster"}
    mirror._reconcile(source)
    assert {name for name, _ in source._configs} == {"others"}
    led[0].log.is_mirror_copy = False
    source._configs = dict(known)
    mirror._reconcile(source)
    assert source._configs == known


def test_a_promoted_copy_is_forgotten_and_copied_to_no_more() -> None:
    (partition,) = led = [LedPartition("dc-east.failing", 0)]
    configs: dict[str, dict[str, str]] = {}
    mirror, source = mirror_of(led, configs)
    mirror._reconcile(source)
    assert mirror.journal.remembers(cast("Any", partition))
    partition.log.is_mirror_copy = False
    configs["dc-east.failing"] = {"headrace.mirror.clusters": ""}
    mirror._reconcile(source)
    assert source.copiers == {}
    assert not mirror.journal.remembers(cast("Any", partition))
    states = states_of(mirror)
    assert states.pairs[-1] == (state_key(b"dc-east.failing-0", partition.topic_id, (1, 0)), None)
    written = len(states.pairs)
    mirror._reconcile(source)
    assert len(states.pairs) == written


def test_a_copier_runs_under_one_leadership_and_not_before_its_state_is_there() -> None:
    (partition,) = led = [LedPartition("dc-east.events")]
    mirror, source = mirror_of(led)
    states = states_of(mirror)
    states.is_away = True
    mirror._reconcile(source)
    assert (source.copiers, source.awaited) == ({}, {("events", 0): 0})
    states.commit()
    copier = source.copiers["events", 0]
    assert source.awaited == {}
    mirror._reconcile(source)
    assert source.copiers["events", 0] is copier
    partition.leader_epoch = 2
    mirror._reconcile(source)
    assert source.copiers == {}, "lost and won again is another leadership"
    states.commit()
    assert source.copiers["events", 0] is not copier
    partition.is_leader = False
    mirror._reconcile(source)
    assert (source.copiers, source.awaited, mirror._leads) == ({}, {}, {})


def test_a_state_that_comes_after_the_leadership_is_for_nobody() -> None:
    (partition,) = led = [LedPartition("dc-east.events")]
    mirror, source = mirror_of(led)
    states = states_of(mirror)
    states.is_away = True
    mirror._reconcile(source)
    partition.is_leader = False
    states.commit()
    assert source.copiers == {}


def test_a_source_that_answered_is_told_before_anything_of_it_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror, source = mirror_of([LedPartition("dc-east.events", 0)])
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


def test_what_a_person_did_not_choose_is_left_out_until_it_is_chosen_again() -> None:
    led = [LedPartition(f"dc-east.{name}", 0) for name in ("orders", "debug")]
    mirror, source = mirror_of(led)
    mirror._reconcile(source)
    assert mirror._choose(source) is False
    states = states_of(mirror)
    for choice, wanted in (("orders", {"orders"}), (None, {"orders", "debug"})):
        states.append([(b"dc-east/topics", encode_topics(choice))])
        assert mirror._choose(source) is True
        assert mirror._choose(source) is False, "told once"
        mirror._reconcile(source)
        assert {topic for topic, _ in source.copiers} == wanted
        answer: dict[str, Any] = {
            "topics": [
                {"name": name, "error_code": 0, "topic_id": UUID(int=5), "partitions": []}
                for name in ("orders", "debug")
            ]
        }
        assert source._topics_of(answer).keys() == wanted


def test_a_new_copy_is_to_start_where_its_source_says_and_one_that_is_known_is_not() -> None:
    led = [LedPartition("dc-east.new", 0), LedPartition("dc-east.known", 0)]
    mirror, source = mirror_of(led)
    source.config = replace(source.config, start=-1)
    known = State(target_id=led[1].topic_id, term=(0, 0))
    states_of(mirror).append([(state_key(b"dc-east.known-0", known.target_id, known.term), known.encode())])
    mirror._reconcile(source)
    assert {topic: copier.state.start for (topic, _), copier in source.copiers.items()} == {
        "new": -1,
        "known": None,
    }


ORDER = RestoreOrder(target_id=UUID(int=9), source_id=UUID(int=3), end_offset=7, epoch=2, epoch_start=5)


def restore_it(mirror: Mirror) -> None:
    key = key_of(b"dc-east.events-0", RESTORE)
    mirror.journal._states_topic.append([(key, encode_restore(ORDER))])


def of_a_restore(partition: LedPartition, mirror: Mirror) -> list[int]:
    """Have the partition be cut at once; the offsets at which it was."""
    cuts: list[int] = []

    async def cut(partition: LedPartition, offset: int, *, leader_epoch: int) -> None:
        assert leader_epoch == partition.leader_epoch
        cuts.append(offset)
        partition.log.log_end_offset = offset

    mirror.restorer._host = cast("Any", SimpleNamespace(cut_mirrored=cut))
    partition.leads_since_its_last_message, partition.is_on_all_in_sync = False, False  # type: ignore[attr-defined]
    return cuts


def test_a_copy_is_restored_before_it_is_copied_to() -> None:
    (partition,) = led = [LedPartition("dc-east.events", end=10)]
    mirror, source = mirror_of(led)
    cuts = of_a_restore(partition, mirror)
    restore_it(mirror)
    mirror._reconcile(source)
    steps = []
    for facts in ({}, {"leads_since_its_last_message": True}, {"is_on_all_in_sync": True}):
        for name, value in facts.items():
            setattr(partition, name, value)
        asyncio.run(mirror.restorer.step())
        steps.append((list(cuts), len(source.copiers), len(source.awaited), len(source.restoring)))
    assert steps == [([], 0, 1, 1), ([7], 0, 1, 1), ([7], 1, 0, 0)]
    state = source.copiers["events", 0].state
    assert (state.epochs, state.source_id) == (((2, 5),), UUID(int=3))
    assert mirror._arrivals.unrecorded == {b"dc-east.events-0"}
    asyncio.run(mirror.restorer.step())
    assert cuts == [7]


def test_a_copy_that_is_copied_to_is_restored_when_that_is_ordered() -> None:
    (partition,) = led = [LedPartition("dc-east.events", end=10)]
    mirror, source = mirror_of(led)
    of_a_restore(partition, mirror)
    mirror._reconcile(source)
    assert source.copiers
    restore_it(mirror)
    mirror._reconcile(source)
    assert (source.copiers, list(source.restoring)) == ({}, [("events", 0)])


def test_a_restore_ends_with_its_leadership_and_goes_on_after_a_failure() -> None:
    (partition,) = led = [LedPartition("dc-east.events", end=10)]
    mirror, source = mirror_of(led)
    of_a_restore(partition, mirror)
    restore_it(mirror)
    mirror._reconcile(source)

    async def fail(*_: object, leader_epoch: int) -> None:
        raise StorageError("the disk is full")

    mirror.restorer._host = cast("Any", SimpleNamespace(cut_mirrored=fail))
    partition.leads_since_its_last_message = True  # type: ignore[attr-defined]
    assert asyncio.run(mirror.restorer.step()) == RETRY_SECONDS
    assert source.restoring["events", 0].problem == NEEDS_CUT
    partition.leader_epoch = 2
    mirror._reconcile(source)
    cuts = of_a_restore(partition, mirror)
    partition.leads_since_its_last_message = partition.is_on_all_in_sync = True  # type: ignore[attr-defined]
    asyncio.run(mirror.restorer.step())
    assert (cuts, len(source.copiers)) == ([7], 1)
