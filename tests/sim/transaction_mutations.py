"""Rules of transactions, each of which can be switched off: some seed of their simulation must fail then.

`MUTATIONS` holds, by name, what puts the code without that rule in its place, and the schedule that shows what it is for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from transaction_simulation import REPLACED, RIVALS, WITHOUT_VERIFICATION, Schedule, simulate

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode
from headrace.broker.log.producers import Marker, ProducerStates
from headrace.broker.server.coordinators.journal import PartitionJournal
from headrace.broker.txn import machine
from headrace.broker.txn.transaction import Transaction
from headrace.broker.wire.batches import BatchHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    without: Callable[[], AbstractContextManager[Any]] = nullcontext
    schedule: Schedule = field(default_factory=Schedule)

    def simulate(self, seed: int) -> None:
        with self.without():
            simulate(seed, self.schedule)


def _of_any_epoch(known: Transaction | None, producer: ProducerEpoch) -> ErrorCode:
    is_known = known is not None and known.producer_id == producer.producer_id
    return ErrorCode.NONE if is_known else ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _at_once(journal: PartitionJournal, told: Callable[[bool], None], timeout_ms: int) -> None:
    told(True)


def _of_any_coordinator(producers: ProducerStates, header: BatchHeader, marker: Marker) -> None:
    producers.check_epoch(header)


MUTATIONS = {
    "epoch of the producer": Mutation(
        without=lambda: patch.object(machine, "_producer_error", _of_any_epoch), schedule=RIVALS
    ),
    "epoch of the coordinator": Mutation(
        without=lambda: patch.object(ProducerStates, "check_marker", _of_any_coordinator),
        schedule=REPLACED,
    ),
    "wait for the high watermark": Mutation(
        without=lambda: patch.object(PartitionJournal, "when_committed", _at_once)
    ),
    "verification": Mutation(schedule=Schedule(settings=WITHOUT_VERIFICATION)),
    "another epoch after a request without an answer": Mutation(
        schedule=Schedule(harm="network", break_chance=0.2, is_careful=False)
    ),
}
