"""The formats of the audit's inputs, and what is not of them."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace.audit.batch_counts import BatchCounts, Entry, Sums
from headrace.audit.records import (
    Arrival,
    Barrier,
    Counted,
    Standstill,
    decode,
    decode_arrival,
    decode_finding,
    encode,
    tally_as_json,
    tally_from_json,
)
from headrace.audit.windows import ProducerName, tally
from headrace.broker.wire.partitions import TopicPartition
from headrace.mirror.memory import arrivals, findings

PARTITION = TopicPartition("pageviews", 3)
TALLIES = tuple(
    tally(["p"], np.zeros(3, dtype=np.intp), np.zeros(3, dtype=np.int64), np.array([1, 2, 2], dtype=np.int64))
)
COUNTED = Counted(
    tier="live",
    datacenter="dc-east",
    partition=PARTITION,
    first=5,
    next=9,
    tallies=TALLIES,
    at_ms=1,
    foreign=1,
    removed=2,
    is_compacted=True,
    producers={"p": ProducerName("web-1", "shop")},
)


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(encode(COUNTED)), **fields}).encode()


def test_count_records_are_read_as_they_were_written() -> None:
    back = decode(encode(COUNTED))
    assert isinstance(back, Counted)
    assert (back.partition, back.first, back.next, back.foreign) == (PARTITION, 5, 9, 1)
    assert back.tallies[0].runs.tolist() == [[1, 2], [2, 2]]
    assert back.producers == COUNTED.producers
    assert (back.removed, back.is_compacted) == (2, True)
    stop = Standstill(tier="offline", datacenter="o", partition=PARTITION, first=4, next=4, reason="rot")
    assert decode(encode(stop)) == stop
    barrier = Barrier(
        tier="live",
        datacenter="dc-east",
        counted={PARTITION: 9},
        monitoring={0: 12},
        whole=frozenset({"pageviews"}),
        at_ms=7,
    )
    assert decode(encode(barrier)) == barrier


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[]",
        b"{}",
        b"\xff",
        changed(kind="else"),
        changed(first=9),
        changed(next=5),
        changed(first=-1),
        changed(partition="x"),
        changed(tallies=[["p", 0, 3, 1, [1, 3]]]),
        changed(tallies=[["p", 0, 3]]),
        changed(tallies=[["p", 0, 2, 1, [1]]]),
        changed(tallies=[["p", 0, 2, 1, [2**70, 3]]]),
        changed(tallies=7),
        changed(producers={"p": ["web-1"]}),
        changed(producers=7),
    ],
)
def test_what_is_no_count_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(value)


def test_a_count_record_of_an_older_release_is_read() -> None:
    fields = json.loads(encode(COUNTED))
    for name in ("producers", "removed", "compacted"):
        del fields[name]
    back = decode(json.dumps(fields).encode())
    assert isinstance(back, Counted)
    assert (back.first, back.next, back.producers) == (5, 9, {})
    assert (back.removed, back.is_compacted) == (0, False)


@pytest.mark.parametrize("window_start", [2**63, -(2**63) - 1])
def test_a_window_out_of_all_time_is_refused(window_start: int) -> None:
    (one,) = tally(["p"], np.zeros(2, dtype=np.intp), np.zeros(2, dtype=np.int64), np.arange(2), 1000)
    fields = tally_as_json(one)
    assert tally_from_json(fields).window_start == 0
    with pytest.raises(ValueError, match="window"):
        tally_from_json([fields[0], window_start, *fields[2:]])


def test_arrivals_are_those_that_the_mirror_writes() -> None:
    value = arrivals.encode(arrivals.Arrival(10, 19, 123, is_estimated=True))
    assert decode_arrival(b"dc-east.page-views-2", value) == Arrival(
        TopicPartition("dc-east.page-views", 2), 10, 19, 123
    )
    assert decode_arrival(b"t-0", arrivals.encode(arrivals.Arrival(5, 4, 1))) is None


@pytest.mark.parametrize("key", [None, b"t", b"t-x", b"-"])
def test_what_is_no_arrival_is_refused(key: bytes | None) -> None:
    with pytest.raises(ValueError, match="no arrival"):
        decode_arrival(key, struct.pack(">qqqb", 0, 0, 0, 0))
    with pytest.raises(ValueError, match="no arrival"):
        decode_arrival(b"t-0", b"short")


def test_findings_are_those_that_the_mirror_writes() -> None:
    written = findings.CopyFinding(
        kind=findings.Kind.TRUNCATION,
        datacenter="dc-east",
        topic="pageviews",
        partition=1,
        first_offset=2,
        last_offset=3,
        detected_ms=4,
        reason="shorter",
    )
    read = decode_finding(written.encode())
    assert (read.id, read.kind, read.datacenter) == (written.id, "truncation", "dc-east")
    assert (read.topic, read.partition, read.reason) == ("pageviews", 1, "shorter")
    for value in (None, b"{}", b"3"):
        with pytest.raises(ValueError, match=r".+"):
            decode_finding(value)


BY_HEADERS = replace(
    COUNTED,
    tallies=(),
    foreign=0,
    removed=0,
    producers={},
    batches=BatchCounts(entries=(Entry(0, 10_000, Sums(4, 500, 77)),), gaps=((6, 6),)),
)


def test_counts_of_batch_headers_are_read_as_they_were_written() -> None:
    assert decode(encode(BY_HEADERS)) == BY_HEADERS


def test_who_does_not_know_batches_takes_them_for_offsets_that_were_passed_over() -> None:
    fields = json.loads(encode(BY_HEADERS))
    del fields["batches"]
    assert decode(json.dumps(fields).encode()) == Standstill(
        tier="live",
        datacenter="dc-east",
        partition=PARTITION,
        first=5,
        next=9,
        reason="counted by its batch headers alone",
        at_ms=1,
    )


def test_a_barrier_says_how_topics_are_audited_and_one_without_such_words_is_read() -> None:
    barrier = Barrier(
        tier="live",
        datacenter="dc-east",
        counted={},
        monitoring={},
        whole=frozenset(),
        at_ms=1,
        modes={"clicks": "headers", "old": "off"},
    )
    assert decode(encode(barrier)) == barrier
    fields = json.loads(encode(barrier))
    del fields["modes"]
    assert decode(json.dumps(fields).encode()) == replace(barrier, modes={})
    with pytest.raises(ValueError, match="no way to audit"):
        decode(json.dumps({**fields, "modes": {"clicks": "glance"}}).encode())
