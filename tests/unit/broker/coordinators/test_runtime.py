"""The runtime knows no kind of coordinator: here it runs one that adds up numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from timed_loop import Loop

from headrace.broker.coordinators.decision import Decision, ProducerEpoch
from headrace.broker.coordinators.records import Record
from headrace.broker.coordinators.runtime import Runtime
from headrace.broker.coordinators.topics import StateTopic
from headrace.broker.errors import ErrorCode, NotEnoughReplicasError
from headrace.broker.wire.batches import read_header


class Sums:
    """A shard: an event (key, number) is stored and answered with the key's sum; "later" adds 100 after a second.

    "order" orders its number, and "in transaction" is stored in the transaction of the producer with that id.
    """

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}
        self.released = False

    def __len__(self) -> int:
        return len(self.sums)

    def decide(self, event: tuple[str, int], now_ms: int, token: int = 0) -> Decision[Any]:
        key, number = event
        decision: Decision[Any] = Decision()
        decision.records.append(Record(key.encode(), str(number).encode()))
        if token:
            decision.reply(token, self.sums.get(key, 0) + number)
        if key == "later" and number != 100:
            decision.set_timer(("add", key, ""), now_ms + 1_000, (key, 100))
        if key == "order":
            decision.orders.append(number)
        if key == "in transaction":
            decision.producer = ProducerEpoch(number, 3)
        return decision

    def append_failed(
        self, event: Any, decision: Decision[Any], error: ErrorCode, now_ms: int, token: int = 0
    ) -> Decision[Any]:
        refused: Decision[Any] = Decision()
        refused.reply(token, error)
        return refused

    def adopt(self, decision: Decision[Any]) -> None:
        pass

    def apply(self, record: Record) -> None:
        assert record.value is not None
        key = record.key.decode()
        self.sums[key] = self.sums.get(key, 0) + int(record.value)

    def release(self) -> None:
        self.released = True


@dataclass(eq=False)
class Book:
    """A journal whose commits and refusals the test decides on; `batches` is what was appended."""

    index: int = 0
    leader_epoch: int = 0
    log: Any = None
    batches: list[bytes] = field(default_factory=list)
    refuses: bool = False
    is_alone: bool = False
    waiting: list[Callable[[bool], None]] = field(default_factory=list)

    def append(self, batch: bytearray, now_ms: int) -> None:
        if self.refuses:
            raise NotEnoughReplicasError("too few")
        self.batches.append(bytes(batch))

    @property
    def is_committed(self) -> bool:
        return self.is_alone

    def when_committed(self, told: Callable[[bool], None], timeout_ms: int) -> None:
        self.waiting.append(told)

    def tell(self, is_committed: bool) -> None:
        waiting, self.waiting = self.waiting, []
        for told in waiting:
            told(is_committed)


class Nothing:
    """A loader of an empty partition."""

    record_count = skipped_count = 0

    def load_slice(self) -> bool:
        return True


class SumsKind:
    name, topic = "sum", StateTopic("__sums", 1, 1, {})
    codec, reply_timeout_ms = 0, 5_000

    def shard(self) -> Sums:
        return Sums()

    def loader(self, log: Any, shard: Sums) -> Nothing:
        return Nothing()

    def loaded(self) -> tuple[str, int]:
        return ("starts", 1)

    def refusal(self, request: Any, error: ErrorCode) -> ErrorCode:
        return error


class NoTopics:
    def topics(self, name: str) -> None:
        return None


class World:
    """A runtime that leads partition 0."""

    def __init__(self) -> None:
        self.loop, self.book = Loop(), Book()
        self.performed: list[tuple[int, Any]] = []
        self.runtime: Runtime[Sums] = Runtime(
            SumsKind(),
            clock=self.loop,
            metadata=NoTopics(),
            scheduler=self.loop,
            perform=lambda journal, order: self.performed.append((journal.index, order)),
        )
        self.runtime.lead(self.book)

    def ask(self, key: str, number: int) -> list[Any]:
        answers: list[Any] = []
        self.runtime.ask(key, (key, number), answers.append)
        return answers

    @property
    def sums(self) -> dict[str, int]:
        (shard,) = self.runtime.shards()
        return shard.sums


def test_what_was_appended_is_applied_at_once_and_answered_once_it_is_committed() -> None:
    world = World()
    assert world.ask("a", 1) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    world.loop.run()
    assert world.sums == {"starts": 1}, "the kind's own event after loading"
    first, second = world.ask("a", 1), world.ask("a", 2)
    assert world.sums["a"] == 3
    assert (first, second) == ([], [])
    world.book.tell(True)
    assert (first, second) == ([1], [3])


def test_what_is_committed_at_once_is_answered_and_performed_at_once() -> None:
    world = World()
    world.loop.run()
    world.book.is_alone = True
    assert world.ask("order", 7) == [7]
    assert (world.performed, world.book.waiting) == ([(0, 7)], [])


def test_a_shard_is_settled_when_it_is_loaded_and_all_of_it_is_committed() -> None:
    world = World()
    world.book.is_alone = True
    assert world.runtime.settled("a") is None
    world.loop.run()
    (shard,) = world.runtime.shards()
    assert world.runtime.settled("a") is shard
    world.book.is_alone = False
    assert world.runtime.settled("a") is None
    world.book.is_alone = True
    world.runtime.resign(0)
    assert world.runtime.settled("a") is None


def test_what_is_refused_or_late_is_answered_and_only_what_is_in_the_log_is_in_memory() -> None:
    world = World()
    world.loop.run()
    late = world.ask("a", 1)
    world.book.tell(False)
    assert late == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.book.refuses = True
    refused = world.ask("a", 5)
    world.book.tell(True)
    assert refused == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.sums["a"] == 1


def test_a_timer_brings_its_event_unless_the_shard_is_gone() -> None:
    world = World()
    world.loop.run()
    world.ask("later", 1)
    world.loop.run(999)
    assert world.sums["later"] == 1
    world.loop.run(1)
    assert world.sums["later"] == 101
    parked = world.ask("later", 1)
    world.runtime.resign(0)
    assert parked == [ErrorCode.NOT_COORDINATOR]
    appended = len(world.book.batches)
    world.loop.run(2_000)
    assert len(world.book.batches) == appended


def test_the_same_journal_goes_on_and_another_begins_anew() -> None:
    world = World()
    world.loop.run()
    world.ask("a", 1)
    (shard,) = world.runtime.shards()
    world.book.leader_epoch = 1
    world.runtime.lead(world.book)
    assert list(world.runtime.shards()) == [shard]
    world.runtime.lead(Book())
    assert shard.released
    world.loop.run()
    assert world.sums == {"starts": 1}


def test_an_order_is_performed_once_what_it_rests_on_is_committed_however_long_that_takes() -> None:
    world = World()
    world.loop.run()
    world.book.tell(True)
    world.ask("order", 7)
    assert not world.performed
    world.book.tell(False)
    world.loop.run()
    assert not world.performed
    world.book.tell(True)
    assert world.performed == [(0, 7)]


def test_a_shard_that_is_gone_orders_nothing() -> None:
    world = World()
    world.loop.run()
    world.ask("order", 7)
    world.runtime.resign(0)
    world.book.tell(True)
    assert not world.performed


def test_a_decision_may_be_stored_in_a_producers_transaction() -> None:
    world = World()
    world.loop.run()
    world.ask("in transaction", 9)
    header = read_header(world.book.batches[-1])
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 0)
