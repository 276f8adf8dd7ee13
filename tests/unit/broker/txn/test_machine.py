"""Shards of transactions as scripts of events: what is stored, answered and ordered, and what a replay of the log finds."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from headrace.broker.config.sections import Transactions
from headrace.broker.coordinators.decision import ProducerEpoch, Timer
from headrace.broker.coordinators.records import Record
from headrace.broker.errors import ErrorCode
from headrace.broker.txn import machine
from headrace.broker.txn.events import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    Event,
    IdExpiryDue,
    InitProducer,
    MarkersWritten,
    ProducerAnswer,
    SendMarkers,
    ShardLoaded,
    TransactionTimedOut,
    VerifyPartitions,
)
from headrace.broker.txn.machine import RETRY_MS, Shard
from headrace.broker.txn.records import encode_key
from headrace.broker.txn.transaction import State, Transaction
from headrace.broker.wire.partitions import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
TIMEOUT_MS = 60_000
FENCED, CONCURRENT = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
MAPPING, INVALID = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE


class World:
    """A shard with its log; what it ordered and its timers are kept until they are taken."""

    def __init__(self, log: list[Record] | None = None) -> None:
        self.ids = count(1000)
        self.shard = Shard(Transactions(transactional_id_expiration_ms=5_000), lambda: next(self.ids))
        self.log: list[Record] = []
        self.now_ms = 1_000
        self.orders: list[SendMarkers] = []
        self.timers: dict[Any, Timer[Event]] = {}
        self.refuses = False
        for record in log or ():
            self.log.append(record)
            self.shard.apply(record)
        self.tell(ShardLoaded())

    def tell(self, event: Event) -> Any:
        decision = self.shard.decide(event, self.now_ms, 1)
        if decision.records and self.refuses:
            error = ErrorCode.NOT_ENOUGH_REPLICAS
            decision = self.shard.append_failed(event, decision, error, self.now_ms, 1)
        self.shard.adopt(decision)
        for record in decision.records:
            self.log.append(record)
            self.shard.apply(record)
        for timer in decision.timers:
            self.timers[timer.key] = timer
        self.orders += decision.orders
        return decision.replies[0].answer if decision.replies else None

    def init(self, expected: ProducerEpoch | None = None, name: str = "tx") -> ProducerAnswer:
        answer = self.tell(InitProducer(transactional_id=name, timeout_ms=TIMEOUT_MS, expected=expected))
        assert isinstance(answer, ProducerAnswer)
        return answer

    def begin(self) -> ProducerEpoch:
        answer = self.init()
        assert answer.error is ErrorCode.NONE
        return ProducerEpoch(answer.producer_id, answer.producer_epoch)

    def add(self, producer: ProducerEpoch, *partitions: TopicPartition) -> ErrorCode:
        event = AddPartitions(transactional_id="tx", producer=producer, partitions=frozenset(partitions))
        return ErrorCode(self.tell(event))

    def end(self, producer: ProducerEpoch, *, commit: bool = True) -> ErrorCode:
        return ErrorCode(
            self.tell(EndTransaction(transactional_id="tx", producer=producer, is_commit=commit))
        )

    def mark(self, *partitions: TopicPartition, producer: ProducerEpoch | None = None) -> None:
        producer = producer or self.orders[-1].producer
        self.tell(MarkersWritten(transactional_id="tx", producer=producer, partitions=frozenset(partitions)))

    @property
    def known(self) -> Transaction:
        return self.shard.transactions["tx"]

    def replayed(self) -> World:
        return World(self.log)


def ended(*, commit: bool = True) -> tuple[World, ProducerEpoch]:
    """A transaction of two partitions that is decided."""
    world = World()
    producer = world.begin()
    assert world.add(producer, A, B) is ErrorCode.NONE
    assert world.end(producer, commit=commit) is ErrorCode.NONE
    return world, producer


def test_a_partition_is_in_a_transaction_under_way_of_its_producer_alone() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, A)
    is_in = world.shard.is_in
    assert is_in("tx", producer, A)
    others = [("tx", producer, B), ("other", producer, A)]
    others += [("tx", producer._replace(epoch=epoch), A) for epoch in (-1, 1)]
    others += [("tx", producer._replace(producer_id=7), A)]
    assert [is_in(*each) for each in others] == [False] * 5
    world.end(producer)
    assert not is_in("tx", producer, A)
    world.mark(A)
    assert not is_in("tx", producer, A)


def test_a_producer_begins_again_in_the_next_epoch() -> None:
    world = World()
    assert world.begin() == (1000, 0)
    assert world.begin() == (1000, 1)
    assert world.replayed().begin() == (1000, 2)


@pytest.mark.parametrize(
    ("commit", "prepared", "complete"),
    [
        (True, State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
        (False, State.PREPARE_ABORT, State.COMPLETE_ABORT),
    ],
    ids=["commit", "abort"],
)
def test_a_transaction_is_complete_once_all_its_markers_are_written(
    commit: bool, prepared: State, complete: State
) -> None:
    world, producer = ended(commit=commit)
    assert world.known.state is prepared
    assert world.orders == [
        SendMarkers(transactional_id="tx", producer=producer, is_commit=commit, partitions=frozenset({A, B}))
    ]
    assert (world.end(producer, commit=commit), world.end(producer, commit=not commit)) == (
        CONCURRENT,
        INVALID,
    )
    assert (world.add(producer, A), world.init().error) == (CONCURRENT, CONCURRENT)
    world.mark(A)
    assert (world.known.state, world.known.partitions) == (prepared, frozenset({B}))
    world.mark(B)
    assert (world.known.state, world.known.partitions) == (complete, frozenset())
    assert (world.end(producer, commit=commit), world.end(producer, commit=not commit)) == (
        ErrorCode.NONE,
        INVALID,
    )


def test_a_replay_finds_what_is_stored_after_every_record() -> None:
    world, _ = ended()
    world.mark(A, B)
    world.add(ProducerEpoch(1000, 0), A)
    for length in range(1, len(world.log) + 1):
        found = World(world.log[:length])
        assert found.log == world.log[:length]
    assert world.replayed().known == world.known.as_stored


def test_whoever_loads_what_is_prepared_orders_all_markers_again() -> None:
    world, producer = ended()
    world.mark(A)
    successor = world.replayed()
    assert successor.orders == world.orders
    successor.mark(A, B)
    assert successor.known.state is State.COMPLETE_COMMIT
    assert not successor.replayed().orders
    assert successor.end(producer) is ErrorCode.NONE


def test_markers_of_another_epoch_complete_nothing() -> None:
    world, producer = ended()
    world.mark(A, B, producer=ProducerEpoch(producer.producer_id, producer.epoch + 1))
    assert world.known.state is State.PREPARE_COMMIT


def test_a_second_producer_aborts_what_the_first_has_open_and_fences_it() -> None:
    world = World()
    first = world.begin()
    world.add(first, A)
    assert world.init().error is CONCURRENT
    assert (world.known.state, world.known.producer_epoch) == (State.PREPARE_ABORT, 1)
    assert world.orders[-1].producer == (1000, 1)
    assert (world.add(first, A), world.end(first)) == (FENCED, FENCED)
    world.mark(A)
    assert world.begin() == (1000, 2)


def test_a_transaction_is_aborted_when_its_time_is_over() -> None:
    world = World()
    producer = world.begin()
    world.now_ms = 7_000
    world.add(producer, A)
    (timer,) = world.timers.values()
    assert (timer.deadline_ms, timer.event) == (
        7_000 + TIMEOUT_MS,
        TransactionTimedOut(transactional_id="tx"),
    )
    successor = world.replayed()
    assert list(successor.timers.values()) == [timer]
    world.tell(TransactionTimedOut(transactional_id="tx"))
    assert world.end(producer) is FENCED
    world.mark(A)
    assert (world.known.state, world.known.producer_epoch) == (State.COMPLETE_ABORT, 1)
    world.tell(TransactionTimedOut(transactional_id="tx"))
    assert world.known.state is State.COMPLETE_ABORT


def test_the_end_of_a_transaction_cancels_its_timer() -> None:
    world, _ = ended()
    (timer,) = world.timers.values()
    assert timer.event is None


def test_a_producer_goes_on_after_an_error_once() -> None:
    world = World()
    old = world.begin()
    bumped = world.init(expected=old)
    assert (bumped.producer_id, bumped.producer_epoch) == (1000, 1)
    assert world.init(expected=old) == bumped, "the answer may have been lost"
    assert world.begin() == (1000, 2)
    assert world.init(expected=old).error is FENCED
    assert world.init(expected=ProducerEpoch(99, 2)).error is FENCED


def test_a_producer_with_the_last_epoch_gets_another_id() -> None:
    world = World()
    world.begin()
    last = ProducerEpoch(1000, 32_766)
    world.shard.transactions["tx"] = world.known.with_epoch(last.epoch, -1, TIMEOUT_MS, 0)
    rotated = world.init(expected=last)
    assert (rotated.error, rotated.producer_id, rotated.producer_epoch) == (ErrorCode.NONE, 1001, 0)
    assert world.init(expected=last) == rotated, "the answer may have been lost"
    assert world.known.last_producer_id == 1001
    world.shard.transactions["tx"] = world.known.with_epoch(32_766, -1, TIMEOUT_MS, 0)
    assert world.begin() == (1002, 0)


def test_without_a_producer_id_clients_come_again() -> None:
    world = World()
    world.shard = Shard(Transactions(), lambda: None)
    assert world.init().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not world.log


def test_strangers_change_nothing() -> None:
    world = World()
    nobody = ProducerEpoch(5, 0)
    assert (world.add(nobody, A), world.end(nobody)) == (MAPPING, MAPPING)
    producer = world.begin()
    stale = ProducerEpoch(producer.producer_id, producer.epoch + 1)
    assert (world.add(nobody, A), world.end(nobody)) == (MAPPING, MAPPING)
    assert (world.add(stale, A), world.end(stale), world.end(producer)) == (FENCED, FENCED, INVALID)
    assert len(world.log) == 1


def test_brokers_verify_partitions() -> None:
    world = World()
    producer = world.begin()

    def verify(producer: ProducerEpoch) -> Any:
        return world.tell(
            VerifyPartitions(transactional_id="tx", producer=producer, partitions=frozenset({A, B}))
        )

    world.add(producer, A)
    assert verify(producer) == {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}
    assert verify(ProducerEpoch(1000, 9)) == {A: FENCED, B: FENCED}
    assert verify(ProducerEpoch(1, 0)) == {A: MAPPING, B: MAPPING}
    world.end(producer)
    assert verify(producer) == {A: CONCURRENT, B: CONCURRENT}


def test_partitions_that_are_in_already_are_not_stored_again() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, A, B)
    stored = len(world.log)
    assert world.add(producer, B) is ErrorCode.NONE
    assert len(world.log) == stored


def test_an_unused_id_expires_and_one_in_a_transaction_does_not() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, A)
    world.now_ms = 60_000
    world.tell(IdExpiryDue(transactional_id="tx"))
    world.end(producer)
    world.mark(A)
    world.tell(IdExpiryDue(transactional_id="tx"))
    assert world.known.state is State.COMPLETE_COMMIT
    world.now_ms += 5_000
    world.tell(IdExpiryDue(transactional_id="tx"))
    assert world.log[-1] == (encode_key("tx"), None, -1)
    assert not world.shard.transactions
    answer = world.tell(DescribeTransaction(transactional_id="tx"))
    assert answer.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_what_the_log_refuses_has_not_happened() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, A)
    before = world.known
    world.refuses = True
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (world.add(producer, B), world.end(producer), world.init().error) == (unavailable,) * 3
    world.tell(TransactionTimedOut(transactional_id="tx"))
    assert (world.known, world.orders) == (before, [])
    (timer,) = world.timers.values()
    assert timer.deadline_ms == world.now_ms + RETRY_MS


def test_a_completion_that_the_log_refuses_is_tried_again() -> None:
    world, _ = ended()
    world.refuses = True
    world.mark(A, B)
    assert (world.known.state, world.known.partitions) == (State.PREPARE_COMMIT, frozenset())
    world.refuses = False
    retry = world.timers["tx", "completion", ""].event
    assert retry is not None
    world.tell(retry)
    assert world.known.state is State.COMPLETE_COMMIT


def test_ids_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TRANSACTIONAL_IDS_COUNT_MAX", 1)
    world = World()
    world.begin()
    assert world.init(name="one more").error is ErrorCode.POLICY_VIOLATION
    assert world.begin() == (1000, 1)
