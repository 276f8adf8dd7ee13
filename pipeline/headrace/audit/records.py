"""What the audit's inputs look like on the wire: count records, arrivals and findings, to and from bytes.

Owns the format of `headrace.counts` (JSON, one object a record, by `kind`):
- `counted`: the tallies of exactly the offsets [first, next) of one partition;
- `skipped` with `batches`: what the batch headers of these offsets say, of a topic that is counted by these; who knows no
  `batches` takes the offsets for passed over, and judges none of them;
- `barrier`: everything below these offsets is counted and published; for the topics that are whole this was the log's
  end after the monitoring topic had these end offsets, so what an account below those says is acknowledged was counted.
  `modes` names the topics that are not audited by their events;
- `standstill`: a partition cannot be counted beyond this offset, and why; `skipped`: offsets that never can be.
The mirror's formats (`headrace.arrivals`, `headrace.findings`) are read only. Pure; anything malformed is a ValueError.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, cast

import numpy as np

from headrace.audit import batch_counts
from headrace.audit.batch_counts import BatchCounts
from headrace.audit.modes import Mode, mode_of
from headrace.audit.windows import ProducerName, Tally
from headrace.broker.wire.partitions import TopicPartition

COUNTS_TOPIC: Final = "headrace.counts"
ARRIVALS_TOPIC: Final = "headrace.arrivals"
FINDINGS_TOPIC: Final = "headrace.findings"
_ARRIVAL: Final = struct.Struct(">qqqb")
BY_HEADERS: Final = "counted by its batch headers alone"

CounterTier = Literal["live", "offline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The tallies of offsets [first, next) of one partition."""

    tier: CounterTier
    datacenter: str
    partition: TopicPartition
    first: int
    next: int
    tallies: tuple[Tally, ...]
    at_ms: int
    """The counter's clock when it counted."""
    foreign: int = 0
    """Records without an event's envelope."""
    removed: int = 0
    """Offsets without any record."""
    is_compacted: bool = False
    """Whether the topic's cleanup.policy compacted it when it was counted."""
    producers: Mapping[str, ProducerName] = field(default_factory=dict)
    """Who the tallied producers are, as their events say."""
    batches: BatchCounts | None = None
    """Of a topic that is counted by its batch headers; its events are not tallied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """What is counted; a counter that starts goes on from there."""

    tier: CounterTier
    datacenter: str
    counted: Mapping[TopicPartition, int]
    monitoring: Mapping[int, int]
    """End offsets of the monitoring topic's partitions before those of the counted ones were asked for."""
    whole: frozenset[str]
    """Topics that are counted to their ends."""
    at_ms: int
    """The counter's clock before it asked for these ends."""
    modes: Mapping[str, Mode] = field(default_factory=dict)
    """How the topics are audited that are not audited by their events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """A partition cannot be counted at `first`; with `next` above it these offsets are given up."""

    tier: CounterTier
    datacenter: str
    partition: TopicPartition
    first: int
    next: int
    reason: str
    at_ms: int = 0
    """The counter's clock when it said so; 0: it did not tell."""


CountRecord = Counted | Barrier | Standstill


def encode(record: CountRecord) -> bytes:
    """Return a count record as compact JSON."""
    return json.dumps(as_fields(record), separators=(",", ":")).encode()


def as_fields(record: CountRecord) -> dict[str, Any]:
    """Return a count record as JSON types."""
    fields: dict[str, Any] = {"tier": record.tier, "datacenter": record.datacenter}
    if isinstance(record, Barrier):
        fields |= {
            "kind": "barrier",
            "monitoring": {str(partition): offset for partition, offset in record.monitoring.items()},
            "counted": [[*partition, offset] for partition, offset in sorted(record.counted.items())],
            "whole": sorted(record.whole),
            "at": record.at_ms,
        }
        if record.modes:
            fields["modes"] = dict(sorted(record.modes.items()))
        return fields
    fields |= {
        "topic": record.partition.topic,
        "partition": record.partition.partition,
        "first": record.first,
        "next": record.next,
    }
    if isinstance(record, Standstill):
        kind = "skipped" if record.next > record.first else "standstill"
        fields |= {"kind": kind, "reason": record.reason, "at": record.at_ms}
    elif record.batches is not None:
        fields |= {
            "kind": "skipped",
            "reason": BY_HEADERS,
            "at": record.at_ms,
            "compacted": record.is_compacted,
            "batches": batch_counts.as_json(record.batches),
        }
    else:
        fields |= {
            "kind": "counted",
            "at": record.at_ms,
            "foreign": record.foreign,
            "tallies": [tally_as_json(item) for item in record.tallies],
            "producers": {producer: name[:2] for producer, name in record.producers.items()},
            "removed": record.removed,
            "compacted": record.is_compacted,
        }
    return fields


def decode(value: bytes | None) -> CountRecord:
    """Return the count record of a message's value."""
    return from_fields(_object(value))


def from_fields(fields: Mapping[str, Any]) -> CountRecord:
    """Undo `as_fields`; raises ValueError for what is no count record."""
    try:
        tier = cast(CounterTier, fields["tier"])
        datacenter = str(fields["datacenter"])
        if fields["kind"] == "barrier":
            return Barrier(
                tier=tier,
                datacenter=datacenter,
                monitoring={
                    int(partition): int(offset) for partition, offset in fields["monitoring"].items()
                },
                counted={
                    TopicPartition(str(topic), int(partition)): int(offset)
                    for topic, partition, offset in fields["counted"]
                },
                whole=frozenset(map(str, fields["whole"])),
                at_ms=int(fields["at"]),
                modes={str(topic): mode_of(mode) for topic, mode in fields.get("modes", {}).items()},
            )
        partition = TopicPartition(str(fields["topic"]), int(fields["partition"]))
        first, following = int(fields["first"]), int(fields["next"])
        if fields["kind"] == "skipped" and "batches" in fields:
            _check_range(first, following)
            return Counted(
                tier=tier,
                datacenter=datacenter,
                partition=partition,
                first=first,
                next=following,
                tallies=(),
                at_ms=int(fields["at"]),
                is_compacted=bool(fields["compacted"]),
                batches=batch_counts.from_json(fields["batches"], first, following),
            )
        if fields["kind"] in ("standstill", "skipped"):
            return Standstill(
                tier=tier,
                datacenter=datacenter,
                partition=partition,
                first=first,
                next=following,
                reason=str(fields["reason"]),
                at_ms=int(fields.get("at", 0)),
            )
        if fields["kind"] != "counted":
            raise ValueError(f"a count record of kind {fields['kind']!r}")
        tallies = tuple(tally_from_json(item) for item in fields["tallies"])
        _check_range(first, following)
        return Counted(
            tier=tier,
            datacenter=datacenter,
            partition=partition,
            first=first,
            next=following,
            tallies=tallies,
            at_ms=int(fields["at"]),
            foreign=int(fields["foreign"]),
            removed=int(fields.get("removed", 0)),
            is_compacted=bool(fields.get("compacted", False)),
            producers={
                str(producer): ProducerName(str(server), str(service))
                for producer, (server, service) in fields.get("producers", {}).items()
            },
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no count record: {error!r}") from error


def _check_range(first: int, following: int) -> None:
    if not 0 <= first < following:
        raise ValueError(f"offsets {first} to {following}")


def tally_as_json(item: Tally) -> list[Any]:
    return [item.producer, item.window_start, item.count, item.fingerprint, item.runs.ravel().tolist()]


def tally_from_json(fields: Any) -> Tally:
    """Raises ValueError for a tally that is not what it says."""
    producer, window_start, count, fingerprint, runs = fields
    found = Tally(
        producer=str(producer),
        window_start=int(window_start),
        count=int(count),
        fingerprint=int(fingerprint),
        runs=np.array(runs, dtype=np.int64).reshape(-1, 2),
    )
    if found.window_start.bit_length() > 63:
        raise ValueError(f"a tally of producer {producer} has the window {window_start}, which is no time")
    if not found.is_sound:
        raise ValueError(f"a tally of producer {producer} does not have the fingerprint of its runs")
    return found


class Arrival(NamedTuple):
    """Offsets first to last of a partition of the offline cluster were appended at this time (milliseconds)."""

    partition: TopicPartition
    first: int
    last: int
    append_ms: int


def decode_arrival(key: bytes | None, value: bytes | None) -> Arrival | None:
    """Return an arrival; None for the record that only says how far arrivals are recorded."""
    topic, dash, partition = (key or b"").decode(errors="replace").rpartition("-")
    if not dash or not partition.isdecimal() or value is None or len(value) != _ARRIVAL.size:
        raise ValueError(f"no arrival: {key!r}: {value!r:.100}")
    first, last, append_ms, _ = _ARRIVAL.unpack(value)
    return Arrival(TopicPartition(topic, int(partition)), first, last, append_ms) if first <= last else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorFinding:
    """What the mirror reports of a source partition; see `headrace.mirror.memory.findings`."""

    id: str
    kind: str
    datacenter: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    detected_ms: int
    reason: str


def decode_finding(value: bytes | None) -> MirrorFinding:
    """Return a finding of the mirror."""
    fields = _object(value)
    try:
        return mirror_finding(fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no finding: {error!r}") from error


def mirror_finding(fields: Mapping[str, Any]) -> MirrorFinding:
    texts = {name: str(fields[name]) for name in ("id", "kind", "datacenter", "topic", "reason")}
    numbers = {
        name: int(fields[name]) for name in ("partition", "first_offset", "last_offset", "detected_ms")
    }
    return MirrorFinding(**texts, **numbers)  # type: ignore[arg-type]


def _object(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise ValueError("no value")
    fields = json.loads(value)
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    return fields
