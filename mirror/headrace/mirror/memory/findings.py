"""What went wrong between a source and its copy, as values: the records of the topic `headrace.findings`.

A finding names the partition, what happened and the offsets it happened to, and is written once however often the
copier looks again. `id` is made of what was found, never of when, so that a reader can drop one that a crash doubled.
Pure values; where they are kept is `journal`'s matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any
from zlib import crc32

from headrace.broker.wire.batches import Record

HOP = "live_to_offline"


class Kind(StrEnum):
    """What was found. The first four stop the partition until `headrace mirror resume`."""

    GAP = "gap"  # the source no longer has, or never had, what comes next
    TRUNCATION = "truncation"  # the source's log is shorter than, or differs from, what was copied
    RECREATION = "recreation"  # the source's topic was deleted and created again
    FORMAT = "format"  # the source sends batches that this broker cannot keep
    ROT = "rot"  # a batch's checksum is wrong at the source: asked for again and again until it is right or skipped
    VANISHED = "vanished"  # the source no longer lists the partition; copying goes on if it comes back
    DIFFERENCE = "difference"  # the copy does not hold what the source holds; copying goes on
    LOSS = "loss"  # offsets that were passed over when the partition was resumed, or that were skipped


STOPPING = frozenset({Kind.GAP, Kind.TRUNCATION, Kind.RECREATION, Kind.FORMAT})


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFinding:
    """`topic` is the source's name for it; offsets are the first and last that it is about, -1 for unknown."""

    kind: Kind
    datacenter: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    detected_ms: int
    reason: str

    @property
    def id(self) -> str:
        cause = crc32(self.reason.encode())
        place = f"{self.datacenter}.{self.topic}-{self.partition}:{self.first_offset}:{self.last_offset}"
        return f"{self.kind}:{place}:{cause:08x}"

    @property
    def count(self) -> int:
        """Offsets it is about."""
        return max(0, self.last_offset - self.first_offset + 1) if self.first_offset >= 0 else 0

    def as_dict(self) -> dict[str, Any]:
        """The record's value as JSON types."""
        return {"id": self.id, "hop": HOP, "count": self.count, **asdict(self), "kind": str(self.kind)}

    def encode(self) -> bytes:
        return json.dumps(self.as_dict(), separators=(",", ":")).encode()


def decoded(records: Iterable[Record], passed_over: Callable[[ValueError], None]) -> Iterator[CopyFinding]:
    """Those of the topic's records; hears of each that is none."""
    for record in records:
        try:
            yield decode(record.value or b"")
        except ValueError as error:
            passed_over(error)


def decode(value: bytes | str) -> CopyFinding:
    """The finding of a record's value; raises ValueError for what is none."""
    return from_dict(json.loads(value))


def from_dict(fields: Any) -> CopyFinding:
    """The finding of `as_dict`; raises ValueError for what is none."""
    try:
        return CopyFinding(
            kind=Kind(fields["kind"]),
            datacenter=str(fields["datacenter"]),
            topic=str(fields["topic"]),
            partition=int(fields["partition"]),
            first_offset=int(fields["first_offset"]),
            last_offset=int(fields["last_offset"]),
            detected_ms=int(fields["detected_ms"]),
            reason=str(fields["reason"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no finding: {fields!r:.200}") from error
