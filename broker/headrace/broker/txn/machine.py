"""One shard of the transaction coordinator: the transactional ids of one `__transaction_state` partition, as decide and apply.

`decide(event)` answers an event: records to append, replies, timers, orders, and each changed transaction as it will be. It
changes nothing. `adopt(decision)` puts those in place, `apply(record)` what is in the log: live it finds what was adopted, on
replay it is the one way in which anything changes. A transaction is decided by its Prepare record; markers are ordered once
that is committed, and the Complete record follows when all partitions have theirs. A shard that is loaded orders the markers
of all that are prepared, however many were written already. The rules are those of Apache Kafka 3.9's
TransactionCoordinator.scala. Knows nothing of logs, sockets or clocks (time comes as `now_ms`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.broker.config.sections import Transactions
from headrace.broker.coordinators.decision import Decision, ProducerEpoch
from headrace.broker.coordinators.records import Record
from headrace.broker.errors import ErrorCode
from headrace.broker.txn.events import (
    AddPartitions,
    DescribeAnswer,
    DescribeTransaction,
    EndTransaction,
    Event,
    IdExpiryDue,
    InitProducer,
    MarkersWritten,
    Overview,
    ProducerAnswer,
    Request,
    SendMarkers,
    ShardLoaded,
    TransactionRequest,
    TransactionTimedOut,
    VerifyPartitions,
)
from headrace.broker.txn.records import decode_key, decode_value, encode_key, encode_value
from headrace.broker.txn.refusals import not_stored, refusal
from headrace.broker.txn.transaction import State, Transaction, is_exhausted
from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.wire.special_values import NO_PRODUCER_EPOCH

# Each costs about 1 KB; Kafka sets no bound. Beyond it, ids that exist go on and new ones are refused.
TRANSACTIONAL_IDS_COUNT_MAX = 20_000
# How soon what the log refused, and no client repeats, is tried again.
RETRY_MS = 1_000


@dataclass(slots=True, kw_only=True)
class TransactionDecision(Decision[Event]):
    """`transactions` are those that change, as they will be, by id."""

    transactions: dict[str, Transaction] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Turn:
    """What time it is, whom to answer, and what has been decided so far."""

    now_ms: int
    token: int
    decision: TransactionDecision = field(default_factory=TransactionDecision)

    def answer(self, answer: object) -> None:
        """Answer the request that is being decided."""
        self.decision.reply(self.token, answer)

    def change(self, transaction: Transaction) -> None:
        """A transaction as it will be, which no record needs to tell."""
        self.decision.transactions[transaction.transactional_id] = transaction

    def store(self, transaction: Transaction) -> None:
        """A transaction as it will be, in a record of its own."""
        key = encode_key(transaction.transactional_id)
        self.decision.records.append(Record(key, encode_value(transaction)))
        self.change(transaction)


class Shard:
    """The transactional ids of one partition; `next_producer_id()` has a new producer id, or None while there is none."""

    def __init__(self, config: Transactions, next_producer_id: Callable[[], int | None]) -> None:
        self.config = config
        self.transactions: dict[str, Transaction] = {}
        self._adopted: Sequence[Record] = ()
        self._next_producer_id = next_producer_id

    def __len__(self) -> int:
        return len(self.transactions)

    def decide(self, event: Event, now_ms: int, token: int = 0) -> TransactionDecision:
        """Decide one event; a request is answered by a reply to `token`."""
        turn = Turn(now_ms=now_ms, token=token)
        if isinstance(event, ShardLoaded):
            self._loaded(turn)
        elif isinstance(event, Request):
            self._decide_request(event, turn)
        else:
            known = self.transactions.get(event.transactional_id)
            if known is not None:
                self._decide_for(known, event, turn)
        return turn.decision

    def _decide_request(self, event: TransactionRequest, turn: Turn) -> None:
        known = self.transactions.get(event.transactional_id)
        match event:
            case InitProducer():
                turn.answer(self._init(known, event, turn))
            case AddPartitions():
                turn.answer(_add_partitions(known, event, turn))
            case VerifyPartitions():
                turn.answer(_verify(known, event))
            case EndTransaction():
                turn.answer(_end(known, event, turn))
            case DescribeTransaction():
                error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if known is None else ErrorCode.NONE
                turn.answer(DescribeAnswer(error=error, transaction=known))

    def _decide_for(
        self, known: Transaction, event: TransactionTimedOut | MarkersWritten | IdExpiryDue, turn: Turn
    ) -> None:
        """Events that time or the partitions' leaders bring."""
        match event:
            case TransactionTimedOut():
                if known.state is State.ONGOING:
                    _prepare(known.fenced(turn.now_ms), turn, is_late=True)
            case MarkersWritten():
                if known.is_prepared and _producer(known) == event.producer:
                    _marked(known, event.partitions, turn)
            case IdExpiryDue():
                oldest_ms = turn.now_ms - self.config.transactional_id_expiration_ms
                if known.is_at_rest and known.updated_ms <= oldest_ms:
                    turn.decision.records.append(Record(encode_key(known.transactional_id), None))

    def is_in(self, transactional_id: str, producer: ProducerEpoch, partition: TopicPartition) -> bool:
        """Whether the producer's transaction is under way and has the partition."""
        known = self.transactions.get(transactional_id)
        return (
            known is not None
            and known.state is State.ONGOING
            and _producer_error(known, producer) is ErrorCode.NONE
            and partition in known.partitions
        )

    def append_failed(
        self, event: Event, decision: TransactionDecision, error: ErrorCode, now_ms: int, token: int = 0
    ) -> TransactionDecision:
        """Decide again after the log refused `decision`'s records: clients hear why and try again, and so does time."""
        turn = Turn(now_ms=now_ms, token=token)
        match event:
            case TransactionTimedOut():
                _set_timer(turn, event.transactional_id, now_ms + RETRY_MS)
            case MarkersWritten():
                # What is marked stays so; it is told again to have the rest done.
                known = self.transactions[event.transactional_id]
                turn.change(known.without(event.partitions))
                turn.decision.set_timer(_completion_key(event.transactional_id), now_ms + RETRY_MS, event)
            case InitProducer() | AddPartitions() | EndTransaction():
                turn.answer(refusal(event, not_stored(error)))
            case _:
                pass
        return turn.decision

    def adopt(self, decision: TransactionDecision) -> None:
        """Take over the transactions as they are to be; the decision's records, which are in the log by now, say the same."""
        self.transactions.update(decision.transactions)
        self._adopted = decision.records

    def apply(self, record: Record) -> None:
        """Change memory by one record that is in the log. Raises RecordFormatError for what Kafka does not write."""
        if record.value is not None and any(record is adopted for adopted in self._adopted):
            return
        transactional_id = decode_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            return
        stored = decode_value(transactional_id, record.value)
        known = self.transactions.get(transactional_id)
        if known is None or known.as_stored != stored:
            self.transactions[transactional_id] = stored

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Nobody writes to this topic in a transaction."""

    def release(self) -> None:
        """Shards share no memory."""

    def overviews(self) -> list[Overview]:
        """All transactional ids for ListTransactions."""
        return [
            Overview(
                transactional_id=known.transactional_id,
                producer_id=known.producer_id,
                state=known.state,
                start_ms=known.start_ms,
            )
            for known in self.transactions.values()
        ]

    def _loaded(self, turn: Turn) -> None:
        for known in self.transactions.values():
            if known.state is State.ONGOING:
                _expect_end(known, turn)
            elif known.is_prepared:
                _order_markers(known, turn)

    def _init(self, known: Transaction | None, event: InitProducer, turn: Turn) -> ProducerAnswer:
        if known is None:
            if len(self.transactions) >= TRANSACTIONAL_IDS_COUNT_MAX:
                return ProducerAnswer(error=ErrorCode.POLICY_VIOLATION)
            producer_id = self._next_producer_id()
            if producer_id is None:
                return ProducerAnswer(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            known = Transaction(
                transactional_id=event.transactional_id,
                producer_id=producer_id,
                timeout_ms=event.timeout_ms,
                updated_ms=turn.now_ms,
            )
        if not _may_go_on(known, event.expected):
            return ProducerAnswer(error=ErrorCode.PRODUCER_FENCED)
        if known.is_prepared:
            return ProducerAnswer(error=ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is State.ONGOING:
            # Who asks comes again, and gets an epoch after the one in which this is aborted.
            _prepare(known.fenced(turn.now_ms), turn)
            return ProducerAnswer(error=ErrorCode.CONCURRENT_TRANSACTIONS)
        begun = self._begun(known, event, turn.now_ms)
        if isinstance(begun, ErrorCode):
            return ProducerAnswer(error=begun)
        turn.store(begun)
        return ProducerAnswer(producer_id=begun.producer_id, producer_epoch=begun.producer_epoch)

    def _begun(self, known: Transaction, event: InitProducer, now_ms: int) -> Transaction | ErrorCode:
        """The producer in its next epoch, or under its next id; or in the present one, for who did not hear of it."""
        expected = None if event.expected is None else event.expected.epoch
        is_current = expected in (None, known.producer_epoch)
        if is_current and known.is_epoch_exhausted:
            producer_id = self._next_producer_id()
            if producer_id is None:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            last_epoch = NO_PRODUCER_EPOCH if expected is None else known.producer_epoch
            return known.with_producer(producer_id, last_epoch, event.timeout_ms, now_ms)
        if is_current or known.producer_epoch == NO_PRODUCER_EPOCH:
            last_epoch = NO_PRODUCER_EPOCH if expected is None else known.producer_epoch
            return known.with_epoch(known.producer_epoch + 1, last_epoch, event.timeout_ms, now_ms)
        if expected == known.last_producer_epoch:
            return known.with_epoch(known.producer_epoch, known.last_producer_epoch, event.timeout_ms, now_ms)
        return ErrorCode.PRODUCER_FENCED


def _may_go_on(known: Transaction, expected: ProducerEpoch | None) -> bool:
    """Whether who says that it is `expected` may be the producer, as far as its id tells."""
    if expected is None or known.producer_epoch == NO_PRODUCER_EPOCH:
        return True
    repeats = expected.producer_id == known.last_producer_id and is_exhausted(expected.epoch)
    return expected.producer_id == known.producer_id or repeats


def _producer(known: Transaction) -> ProducerEpoch:
    return ProducerEpoch(known.producer_id, known.producer_epoch)


def _producer_error(known: Transaction | None, producer: ProducerEpoch) -> ErrorCode:
    """Whether who asks is the producer of the transactional id."""
    if known is None or known.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if known.producer_epoch == producer.epoch else ErrorCode.PRODUCER_FENCED


def _add_partitions(known: Transaction | None, event: AddPartitions, turn: Turn) -> ErrorCode:
    error = _producer_error(known, event.producer)
    if known is None or error is not ErrorCode.NONE:
        return error
    if known.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.state is State.ONGOING and event.partitions <= known.partitions:
        return ErrorCode.NONE
    changed = known.with_partitions(event.partitions, turn.now_ms)
    turn.store(changed)
    if known.state is not State.ONGOING:
        _expect_end(changed, turn)
    return ErrorCode.NONE


def _verify(known: Transaction | None, event: VerifyPartitions) -> dict[TopicPartition, ErrorCode]:
    error = _producer_error(known, event.producer)
    if known is None or error is not ErrorCode.NONE:
        return dict.fromkeys(event.partitions, error)
    if known.is_prepared:
        return dict.fromkeys(event.partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
    return {
        partition: ErrorCode.NONE if partition in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in event.partitions
    }


def _end(known: Transaction | None, event: EndTransaction, turn: Turn) -> ErrorCode:
    error = _producer_error(known, event.producer)
    if known is None or error is not ErrorCode.NONE:
        return error
    if known.state is State.ONGOING:
        _prepare(known.prepared(is_commit=event.is_commit, now_ms=turn.now_ms), turn)
        return ErrorCode.NONE
    same = (
        (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
        if event.is_commit
        else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
    )
    if known.state not in same:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if known.is_prepared else ErrorCode.NONE


def _prepare(prepared: Transaction, turn: Turn, *, is_late: bool = False) -> None:
    """The end is decided: nothing but its completion follows."""
    turn.store(prepared)
    turn.decision.cancel_timer(_timeout_key(prepared.transactional_id))
    _order_markers(prepared, turn, is_late=is_late)


def _order_markers(prepared: Transaction, turn: Turn, *, is_late: bool = False) -> None:
    order = SendMarkers(
        transactional_id=prepared.transactional_id,
        producer=_producer(prepared),
        is_commit=prepared.state is State.PREPARE_COMMIT,
        partitions=prepared.partitions,
        is_late=is_late,
    )
    turn.decision.orders.append(order)


def _marked(known: Transaction, marked: frozenset[TopicPartition], turn: Turn) -> None:
    """Some partitions have their markers; with the last one the transaction is complete."""
    if known.awaits_more(marked):
        turn.change(known.without(marked))
    else:
        turn.store(known.completed(turn.now_ms))


def _expect_end(ongoing: Transaction, turn: Turn) -> None:
    _set_timer(turn, ongoing.transactional_id, ongoing.start_ms + ongoing.timeout_ms)


def _set_timer(turn: Turn, transactional_id: str, deadline_ms: int) -> None:
    event = TransactionTimedOut(transactional_id=transactional_id)
    turn.decision.set_timer(_timeout_key(transactional_id), deadline_ms, event)


def _timeout_key(transactional_id: str) -> tuple[str, str, str]:
    return (transactional_id, "timeout", "")


def _completion_key(transactional_id: str) -> tuple[str, str, str]:
    return (transactional_id, "completion", "")
