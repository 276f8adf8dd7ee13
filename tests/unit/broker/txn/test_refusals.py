"""What is told of refused requests, whatever form their answers have."""

from __future__ import annotations

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode
from headrace.broker.txn.events import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    VerifyPartitions,
)
from headrace.broker.txn.refusals import asker, error_of, refusal
from headrace.broker.wire.partitions import TopicPartition

PRODUCER = ProducerEpoch(7, 3)
PLACES = frozenset((TopicPartition("t", 0),))
OF_PRODUCERS = (
    InitProducer(transactional_id="t", timeout_ms=1, expected=PRODUCER),
    AddPartitions(transactional_id="t", producer=PRODUCER, partitions=PLACES),
    VerifyPartitions(transactional_id="t", producer=PRODUCER, partitions=PLACES),
    EndTransaction(transactional_id="t", producer=PRODUCER, is_commit=True),
)
OF_ANYBODY = (DescribeTransaction(transactional_id="t"), InitProducer(transactional_id="t", timeout_ms=1))


def test_every_refusal_tells_its_error_and_who_asked() -> None:
    for request in (*OF_PRODUCERS, *OF_ANYBODY):
        assert error_of(refusal(request, ErrorCode.PRODUCER_FENCED)) is ErrorCode.PRODUCER_FENCED
    assert error_of({}) is ErrorCode.NONE
    assert {asker(request) for request in OF_PRODUCERS} == {"7/3"}
    assert {asker(request) for request in OF_ANYBODY} == {""}
