"""How far a partition of a source is in the target: the source's next offset, and the sequence number that its message gets.

Invariant: along one producer id the two grow together, and only as the source's log says: by the committed messages that lie
between two offsets. So each position that was ever true stays true, whoever worked it out. Sequence numbers wrap at 2**31 as
those of all producers do (KIP-98). Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

from headrace.broker.wire.batches import LENGTH_END, MAGIC, BatchHeader
from headrace.broker.wire.special_values import NO_EPOCH

SEQUENCE_COUNT = 2**31
VERSION = 1


class MalformedPositionError(ValueError):
    """The bytes hold no position."""


class Tail(NamedTuple):
    """The source's last batch before a position: where it begins, how long it is, its checksum there."""

    base_offset: int
    size: int
    crc: int

    @classmethod
    def of(cls, header: BatchHeader) -> Tail:
        return cls(header.base_offset, header.size, header.crc)

    @property
    def header(self) -> BatchHeader:
        """As far as it is known."""
        return BatchHeader(
            self.base_offset, self.size - LENGTH_END, NO_EPOCH, MAGIC, self.crc, 0, 0, -1, -1, -1, -1, -1, 0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """`producer_id` writes the partition, whoever owns it; `leader_epoch` and `tail` are of the source's last batch before
    `offset`. Below `target_offset` the target's log has no batch of the producer with `sequence` or a later one; -1: not known.
    """

    producer_id: int
    topic_id: UUID
    offset: int
    sequence: int = 0
    leader_epoch: int = NO_EPOCH
    tail: Tail | None = None
    target_offset: int = -1

    def passed(self, header: BatchHeader, count: int) -> Position:
        """Behind a batch of which `count` messages are in the target."""
        return replace(
            self,
            offset=header.next_offset,
            sequence=(self.sequence + count) % SEQUENCE_COUNT,
            leader_epoch=header.leader_epoch,
            tail=Tail.of(header),
        )

    def passed_over(self, last_offset: int) -> Position:
        """Behind offsets of which nothing is in the target, and never will be."""
        return replace(self, offset=last_offset + 1, leader_epoch=NO_EPOCH, tail=None)

    def ahead(self, next_sequence: int) -> int:
        """How many messages the target has beyond this position; below 0: how many it lacks."""
        distance = (next_sequence - self.sequence) % SEQUENCE_COUNT
        return distance if distance < SEQUENCE_COUNT // 2 else distance - SEQUENCE_COUNT

    def encode(self) -> bytes:
        """As it stands in the offset registry."""
        fields = {
            "version": VERSION,
            "offset": self.offset,
            "sequence": self.sequence,
            "producer_id": self.producer_id,
            "topic_id": str(self.topic_id),
            "leader_epoch": self.leader_epoch,
            "tail": self.tail,
            "target_offset": self.target_offset,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes) -> Position:
    """Raises MalformedPositionError."""
    try:
        fields = json.loads(data)
        if fields["version"] != VERSION:
            raise MalformedPositionError(f"positions of version {fields['version']} are not known")
        return Position(
            producer_id=_count(fields["producer_id"]),
            topic_id=UUID(fields["topic_id"]),
            offset=_count(fields["offset"]),
            sequence=_count(fields["sequence"]) % SEQUENCE_COUNT,
            leader_epoch=int(fields["leader_epoch"]),
            tail=Tail(*map(_count, fields["tail"])) if fields.get("tail") is not None else None,
            # Earlier versions did not write it.
            target_offset=int(fields.get("target_offset", -1)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedPositionError(f"no position: {data[:200]!r} ({error})") from error


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no number from 0 on")
    return value
