"""What a coordinator's shard decides: records to append, replies to hold until they are committed, timers to set.

A decision is a proposal: nothing of it has happened when it is made. Knows nothing of any kind of coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.broker.coordinators.records import Record

Event = TypeVar("Event")
TimerKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer to the request that came with the token `to`; leaves once everything appended so far is
    committed.
    """

    to: int
    answer: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer(Generic[Event]):
    """Set the timer `key` to bring `event` at `deadline_ms`, or cancel it (`event` None). One timer a key."""

    key: TimerKey
    deadline_ms: int = 0
    event: Event | None = None


class ProducerEpoch(NamedTuple):
    """A life of a producer."""

    producer_id: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class Decision(Generic[Event]):
    """What a decision asks for: append `records` in one batch, adopt it, apply the records, set timers, send replies.

    `orders` are what the kind has the broker do, once everything appended so far is committed; `producer` is the one in whose
    transaction the records are. What a kind keeps beside its records is in fields of its own, for its shard's `adopt`.
    """

    records: list[Record] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    timers: list[Timer[Event]] = field(default_factory=list)
    orders: list[Any] = field(default_factory=list)
    producer: ProducerEpoch | None = None

    def reply(self, to: int, answer: Any) -> None:
        self.replies.append(Reply(to=to, answer=answer))

    def set_timer(self, key: TimerKey, deadline_ms: int, event: Event) -> None:
        self.timers.append(Timer(key=key, deadline_ms=deadline_ms, event=event))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append(Timer(key=key))
