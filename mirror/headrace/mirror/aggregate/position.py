"""How far a partition of a source is in the target: the source's next offset, and the sequence number that its message gets.

Invariant: along one producer id the two grow together, and only as the source's log says: by the committed messages that lie
between two offsets. So each position that was ever true stays true, whoever worked it out. Sequence numbers wrap at 2**31 as
those of all producers do (KIP-98). Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from headrace.broker.wire.special_values import NO_EPOCH

SEQUENCE_COUNT = 2**31
VERSION = 1


class MalformedPositionError(ValueError):
    """The bytes hold no position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """`producer_id` writes the partition, whoever owns it; `leader_epoch` is that of the source's last batch before `offset`."""

    producer_id: int
    topic_id: UUID
    offset: int
    sequence: int = 0
    leader_epoch: int = NO_EPOCH

    def passed(self, next_offset: int, leader_epoch: int, count: int) -> Position:
        """Behind a batch of which `count` messages are in the target."""
        sequence = (self.sequence + count) % SEQUENCE_COUNT
        return replace(self, offset=next_offset, sequence=sequence, leader_epoch=leader_epoch)

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
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedPositionError(f"no position: {data[:200]!r} ({error})") from error


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no number from 0 on")
    return value
