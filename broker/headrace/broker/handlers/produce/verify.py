"""Whose coordinator has to be asked before a batch is appended, and what its producer hears when that says no (KIP-890).

The rules of kafka.server.ReplicaManager.maybeStartTransactionVerificationForPartitions and handleProduceAppend.
Must not know: how coordinators are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import (
    ErrorCode,
    InvalidTransactionStateError,
    KafkaError,
    NotEnoughReplicasError,
    error_of,
)
from headrace.broker.handlers.produce.read import Item
from headrace.broker.handlers.services import Services
from headrace.broker.log.verification import Verification, Verifications
from headrace.broker.wire.batches import HEADER_SIZE, MAGIC, MAGIC_AT, BatchHeader, read_header

# The first version whose clients know TRANSACTION_ABORTABLE.
ABORTABLE_VERSION = 11
# What passes: clients are told something after which all of them, the oldest as well, send the batch again.
_PASSING = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Asked(NamedTuple):
    """A batch whose coordinator is asked, and what lets it in once that has said yes."""

    header: BatchHeader
    verification: Verification
    verifications: Verifications
    """Those of the partition."""

    @property
    def is_behind_others(self) -> bool:
        """Whether a batch of the producer waits already."""
        return self.verifications.is_waited_in(self.header.producer_id)

    def wait(self) -> None:
        """The producer's next batches for the partition wait behind this one, until `go_on`."""
        self.verifications.wait(self.header.producer_id)

    def go_on(self) -> None:
        self.verifications.go_on(self.header.producer_id)


def transactional_header(records: memoryview | None) -> BatchHeader | None:
    """The header of a batch in a transaction; None of any other, and of what is none."""
    if records is None or len(records) < HEADER_SIZE or records[MAGIC_AT] != MAGIC:
        return None
    header = read_header(records)
    return header if header.is_transactional and header.producer_id >= 0 else None


def producer_of(headers: Sequence[BatchHeader | None]) -> ProducerEpoch | None:
    """Who writes in a transaction, if anybody; raises INVALID_PRODUCER_ID_MAPPING when those are several."""
    producers = {ProducerEpoch(h.producer_id, h.producer_epoch) for h in headers if h is not None}
    if len(producers) > 1:
        raise error_of(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "the request has batches of several producers: send one's only",
        )
    return next(iter(producers), None)


def begin(broker: Services, item: Item, header: BatchHeader | None) -> Asked | None:
    """What to ask for before the item is appended; None when nothing is: raises a KafkaError when it is not led here."""
    if header is None:
        return None
    topic, index, _ = item
    producers = broker.partitions.leader_of(topic, index).log.producers
    verification = producers.begin_verification(
        header.producer_id, header.base_sequence, header.producer_epoch, broker.clock.now_ms()
    )
    return None if verification is None else Asked(header, verification, producers.verifications)


def refusal_of(error: ErrorCode, version: int) -> KafkaError:
    """What the producer is told when the coordinator's answer is not NONE."""
    if error in _PASSING:
        return NotEnoughReplicasError(f"the transaction could not be verified ({error.name}): send it again")
    is_missing = error in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)
    reason = "the partition was not added to the transaction: abort it, and begin another one"
    if is_missing and (version < ABORTABLE_VERSION or error is ErrorCode.INVALID_TXN_STATE):
        return InvalidTransactionStateError(reason)
    return error_of(error, reason if is_missing else "")
