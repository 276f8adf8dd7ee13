"""What `headrace mirror` makes of the records that others wrote."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import click
import pytest
from mirror_kit import finding

from headrace.broker.wire.batches import Record
from headrace.mirror.aggregate.stream import Rot
from headrace.mirror.commands.main import OffsetRangeType, _print
from headrace.mirror.commands.topics import _told, left_out
from headrace.mirror.memory import orders
from headrace.mirror.memory.findings import CopyFinding, Kind
from headrace.mirror.memory.own_topics import SOURCES
from headrace.mirror.memory.reports import AggregateReport, Report, SourceReport, decode
from headrace.mirror.memory.state import Skip, State, decode_skip, state_key
from headrace.mirror.memory.states import States
from headrace.mirror.names import CopyNames
from headrace.mirror.told import states_of
from headrace.mirror.verbs import ordering
from headrace.mirror.verbs.overview import Heard, overview

KNOWN = State(target_id=UUID(int=3), source_bootstrap="east:9092")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"dc-east.t-1", b"rubbish"),
        (b"dc-east.t-1", b"{}"),
        (b"dc-east.t-1", b"7"),
        (b"dc-east.t-1", b""),
        (b"dc-east.t-1", b'{"target_id": "x"}'),
        (b"\xff\xfe", KNOWN.encode()),
        (None, None),
    ],
)
def test_a_record_that_is_no_state_is_passed_over_with_a_warning(
    capsys: pytest.CaptureFixture[str], key: bytes | None, value: bytes | None
) -> None:
    async def read(topic: str) -> dict[int, list[Any]]:
        assert topic == "headrace.mirror"
        records = [
            Record(0, 1000, b"dc-east.t-1", KNOWN.encode(), []),
            Record(1, 2000, key, value, []),
            Record(2, 3000, b"dc-east.t-1/resume", b'{"stop": "anything"}', []),
        ]
        return {0: records}

    assert asyncio.run(states_of(cast("Any", SimpleNamespace(read=read, topic_ids={})))) == {
        "dc-east.t-1": KNOWN
    }
    assert capsys.readouterr().err.startswith("Warning: a record of headrace.mirror is passed over: ")


class Cluster:
    """What the command asks of an offline cluster, in memory: one broker, which takes every order."""

    def __init__(self, found: State) -> None:
        self.found = found
        self.orders: list[tuple[bytes, bytes]] = []
        self.reports: list[Report] = []

    async def read(self, topic: str) -> dict[int, list[Any]]:
        if topic == SOURCES:
            return {0: [Record(n, n, b"", report.encode(), []) for n, report in enumerate(self.reports)]}
        return {0: [Record(0, 1000, b"dc-east.t-0", self.found.encode(), [])]}

    async def leader_of(self, topic: str, partition: int) -> int:
        return 1

    @property
    def topic_ids(self) -> dict[str, UUID]:
        return {"dc-east.t": KNOWN.target_id}

    async def publish(self, topic: str, partition: int, key: bytes, value: bytes) -> int:
        assert partition == 0, "the one that all brokers read"
        self.orders.append((key, value))
        return 0


def skipped(cluster: Cluster, first: int, last: int) -> str:
    return asyncio.run(ordering.skip(cast("Any", cluster), "dc-east.t", 0, (first, last)))


def test_a_skip_of_the_rotten_offsets_is_ordered_and_says_what_is_lost() -> None:
    rotten = finding(Kind.ROT, 100, 149)
    cluster = Cluster(replace(KNOWN, rotten=rotten))
    assert skipped(cluster, 100, 149) == (
        "Offsets 100 to 149 of dc-east.t-0, 50 messages at most, will never be in the copy: the source's data there is "
        "rotten. The copy goes on behind them; the loss is recorded as a finding."
    )
    ((key, value),) = cluster.orders
    assert (key, decode_skip(value).is_of(rotten)) == (b"dc-east.t-0/skip", True)


@pytest.mark.parametrize(
    ("found", "offsets", "sentence"),
    [
        (KNOWN, (1, 2), "dc-east.t-0 is not rotten, there is nothing to skip"),
        (replace(KNOWN, stopped=finding(Kind.GAP, 1, 2)), (1, 2), "is stopped, not rotten"),
        (
            replace(KNOWN, rotten=finding(Kind.ROT, 1, 2)),
            (1, 3),
            "rotten at offsets 1-2, not 1-3: give --offsets 1-2",
        ),
        (replace(KNOWN, rotten=finding(Kind.ROT, 1, 2)), (0, 2), "rotten at offsets 1-2, not 0-2"),
        (
            replace(KNOWN, rotten=finding(Kind.ROT, 1, -1)),
            (0, 2),
            "nothing tells how far: give --offsets 1-LAST",
        ),
    ],
)
def test_a_skip_of_anything_else_is_refused(found: State, offsets: tuple[int, int], sentence: str) -> None:
    cluster = Cluster(found)
    with pytest.raises(click.ClickException) as refused:
        skipped(cluster, *offsets)
    assert sentence in refused.value.message
    assert cluster.orders == []


def aggregate(rotten: str) -> AggregateReport:
    return AggregateReport(
        source="dc-west", topic="t", partition=3, state="stopped", lag=None, reason="rot: …", rotten=rotten
    )


def skipped_of_aggregate(*rotten: str, offsets: tuple[int, int] = (100, 149)) -> tuple[str, Cluster]:
    cluster = Cluster(KNOWN)
    cluster.reports = [
        Report(broker=n, at_ms=n, sources=(), topics=(), partitions=(), aggregates=(aggregate(one),))
        for n, one in enumerate(rotten)
    ]
    return asyncio.run(ordering.skip(cast("Any", cluster), "dc-west.t", 3, offsets)), cluster


@pytest.mark.parametrize("known", ["100-149", "100-LAST"])
def test_rot_of_a_source_is_skipped_for_its_aggregate(known: str) -> None:
    said, cluster = skipped_of_aggregate("", known)
    assert said.startswith("Offsets 100 to 149 of dc-west.t-3, 50 messages at most, will never be in t: ")
    ((key, value),) = cluster.orders
    order = decode_skip(value)
    assert (key, order.rot, order.last_offset) == (b"dc-west.t-3/skip", Rot(100, 149).name, 149)
    assert Rot(100, 149).is_ended_by(order)


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ("", "dc-west.t-3 is not rotten, there is nothing to skip"),
        ("100-150", "is rotten at offsets 100-150, not 100-149: give --offsets 100-150"),
        ("99-LAST", "is rotten at offsets 99-LAST, not 100-149"),
    ],
)
def test_a_skip_of_anything_else_of_a_source_is_refused(known: str, sentence: str) -> None:
    with pytest.raises(click.ClickException) as refused:
        skipped_of_aggregate("100-149", known)
    assert sentence in refused.value.message


def test_a_skip_that_is_done_is_not_ordered_again() -> None:
    done = Skip(log_end_offset=90, first_offset=100, last_offset=149)
    for found in (
        replace(KNOWN, skipped=done),
        replace(KNOWN, skipped=done, rotten=finding(Kind.ROT, 150, 160)),
    ):
        cluster = Cluster(found)
        assert skipped(cluster, 100, 149) == "Offsets 100 to 149 of dc-east.t-0 are skipped already."
        assert cluster.orders == []


def test_a_resume_of_rot_names_the_way_on() -> None:
    cluster = Cluster(replace(KNOWN, rotten=finding(Kind.ROT, 100, 149)))
    with pytest.raises(
        click.ClickException, match=r"rotten at offsets 100-149, .* `headrace mirror skip` gives it up"
    ):
        asyncio.run(ordering.resume(cast("Any", cluster), "dc-east.t", 0))


@pytest.mark.parametrize("text", ["5", "5-", "-5", "7-5", "a-b", "1-2-3"])
def test_offsets_are_a_range(text: str) -> None:
    with pytest.raises(click.BadParameter, match="give FIRST-LAST"):
        OffsetRangeType().convert(text, None, None)


def test_of_two_leaders_states_that_of_the_later_epoch_counts() -> None:
    later = replace(KNOWN, resumed_at=7, term=(5, 9))
    late, other = replace(KNOWN, term=(4, 9)), replace(KNOWN, target_id=UUID(int=4), term=(9, 9))
    place, records = b"dc-east.t-1", []
    for number, state in enumerate((later, late, other)):
        key = state_key(place, state.target_id, state.term)
        records.append(Record(number, number, key, state.encode(), []))

    async def read(topic: str) -> dict[int, list[Any]]:
        return {0: records}

    for ids, found in (({"dc-east.t": KNOWN.target_id}, later), ({}, other)):
        client = SimpleNamespace(read=read, topic_ids=ids)
        assert asyncio.run(states_of(cast("Any", client))) == {"dc-east.t-1": found}


def test_the_later_state_counts_where_two_brokers_of_an_earlier_version_led_a_copy() -> None:
    later = replace(KNOWN, resumed_at=7)

    async def read(topic: str) -> dict[int, list[Any]]:
        return {
            0: [
                Record(0, 9, b"dc-east.t-1", KNOWN.encode(), []),
                Record(1, 8, b"dc-east.t-1", later.encode(), []),
            ],
            1: [Record(0, 3, b"dc-east.t-1", KNOWN.encode(), [])],
        }

    client = SimpleNamespace(read=read, topic_ids={})
    assert asyncio.run(states_of(cast("Any", client))) == {"dc-east.t-1": later}


def paused(cluster: Cluster, *topics: str, is_paused: bool = True, dry_run: bool = False) -> list[str]:
    return asyncio.run(ordering.pause(cast("Any", cluster), topics, is_paused=is_paused, dry_run=dry_run))


def test_a_pause_is_ordered_once_for_each_copy_and_a_dry_run_orders_nothing() -> None:
    cluster = Cluster(KNOWN)
    assert paused(cluster, "dc-east.t", dry_run=True) == [
        "dc-east.t would be paused; `headrace mirror resume dc-east.t` lets it go on."
    ]
    assert cluster.orders == []
    paused(cluster, "dc-east.t")
    assert cluster.orders == [(b"dc-east.t/pause", b'{"paused": true}')]
    assert paused(cluster, "dc-east.t", is_paused=False) == ["dc-east.t is not paused."]
    with pytest.raises(click.ClickException, match=r"nothing\.here is no mirror's copy"):
        paused(cluster, "dc-east.t", "nothing.here")
    assert len(cluster.orders) == 1, "none of them, then"


def test_a_dry_run_of_a_skip_or_a_resume_orders_nothing() -> None:
    cluster = Cluster(replace(KNOWN, rotten=finding(Kind.ROT, 100, 149)))
    said = asyncio.run(ordering.skip(cast("Any", cluster), "dc-east.t", 0, (100, 149), dry_run=True))
    assert "would never be in the copy" in said
    stopped = Cluster(replace(KNOWN, stopped=finding(Kind.GAP, 1, 2)))
    asyncio.run(ordering.resume(cast("Any", stopped), "dc-east.t", 0, dry_run=True))
    assert cluster.orders == stopped.orders == []


@pytest.mark.parametrize(
    ("stopped", "cost"),
    [
        (
            finding(Kind.GAP, 90, 95),
            " Offsets 90 to 95, which the source no longer has, are never in the copy.",
        ),
        (
            finding(Kind.RECREATION, 0, 89),
            " The source's new messages at offsets 0 to 89 are never in the copy, ",
        ),
        (
            finding(Kind.TRUNCATION, 40, 89),
            " The source's new messages at offsets 40 to 89 are never in the copy, ",
        ),
        (finding(Kind.RECREATION, 0, -1), ""),
        (finding(Kind.FORMAT, 90, 90), ""),
    ],
)
def test_a_resume_says_what_it_costs(stopped: CopyFinding, cost: str) -> None:
    cluster = Cluster(replace(KNOWN, stopped=stopped))
    said = asyncio.run(ordering.resume(cast("Any", cluster), "dc-east.t", 0))
    begin = f"dc-east.t-0 goes on; it had stopped because {stopped.kind}: so it is."
    assert said.startswith(begin + cost)
    assert bool(cost) == (said != begin)


def test_orders_that_hold_for_topics_and_sources_are_the_last_ones() -> None:
    folded = States()
    for offset, (key, value) in enumerate(
        [
            (b"dc-east.t/pause", orders.encode_pause(is_paused=True)),
            (b"dc-east.u/pause", orders.encode_pause(is_paused=True)),
            (b"dc-east.u/pause", orders.encode_pause(is_paused=False)),
            (b"dc-east/limit", orders.encode_limit(5)),
            (b"dc-east/limit", orders.encode_limit(7)),
            (b"dc-west/limit", orders.encode_limit(7)),
            (b"dc-west/limit", orders.encode_limit(None)),
        ]
    ):
        folded.take(0, Record(offset, offset, key, value, []))
    assert [folded.is_paused(topic) for topic in ("dc-east.t", "dc-east.u", "dc-east.v")] == [
        True,
        False,
        False,
    ]
    assert [folded.limit_of(source) for source in ("dc-east", "dc-west", "dc-gone")] == [7, None, None]
    for value in (b"7", b"{}", b"rubbish", b'{"bytes_per_second": 0}'):
        with pytest.raises(ValueError, match=r"."):
            folded.take(0, Record(9, 9, b"dc-east/limit", value, []))
    assert folded.limit_of("dc-east") == 7


def test_the_last_choice_of_topics_counts_and_what_is_no_expression_chooses_nothing() -> None:
    folded = States()
    for offset, choice in enumerate(("a", "(?!debug).*")):
        folded.take(0, Record(offset, offset, b"dc-east/topics", orders.encode_topics(choice), []))
    for value in (b"7", b"{}", b"rubbish", b'{"topics": "("}', b'{"topics": 7}'):
        with pytest.raises(ValueError, match=r"."):
            folded.take(0, Record(9, 9, b"dc-east/topics", value, []))
    topics = {"dc-east.orders", "dc-east.debug.x", "dc-west.debug.x", "own", "renamed"}
    names = CopyNames({"renamed": "dc-east.debug.y"})
    assert left_out(folded, topics, names) == {"dc-east.debug.x", "renamed"}
    folded.take(0, Record(9, 9, b"dc-east/topics", orders.encode_topics(None), []))
    assert left_out(folded, topics, names) == frozenset()


def test_a_choice_says_which_copies_it_leaves_out_and_which_it_takes_again() -> None:
    before, after = re.compile("a|b"), re.compile("b|c")
    copies = {f"dc-east.{topic}": topic for topic in "abc"}
    said = _told("dc-east", {"a", "b", "c", "d"}, copies, before, after, dry_run=True)
    assert said == [
        "dc-east.a would be left out; it stays what it is.",
        "dc-east.c would be copied to again, from where it is on.",
        "2 of 4 topics of dc-east would be chosen.",
    ]
    cluster = Cluster(KNOWN)
    asyncio.run(ordering.choose(cast("Any", cluster), "dc-east", "b|c"))
    assert cluster.orders == [(b"dc-east/topics", orders.encode_topics("b|c"))]


@pytest.mark.parametrize(("is_aggregate", "mode"), [(False, "copy"), (True, "aggregate")])
def test_what_goes_into_an_aggregate_is_not_told_as_never_compared(
    is_aggregate: bool, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = SourceReport(
        name="dc-east", bootstrap="east:9092", answered_ms=1_000, problem="", is_aggregate=is_aggregate
    )
    report = decode(Report(broker=1, at_ms=1_000, sources=(source,)).encode())
    found = overview(Heard(leaders={}, log_ends={}, states={}, reports={1: report}), {}, 2_000)
    assert [row["mode"] for row in found["sources"]] == [mode]
    _print(found, [])
    assert ("never" in capsys.readouterr().out) is not is_aggregate


def test_what_needs_somebody_stands_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    found = overview(Heard(leaders={}, log_ends={}, states={}, reports={}), {}, 2_000)
    _print(found, ["source dc-east: never reached", "x" * 200])
    said = capsys.readouterr().out
    assert said.endswith(f"\nWhat needs you:\nsource dc-east: never reached\n{'x' * 200}\n")
