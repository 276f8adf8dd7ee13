"""AddOffsetsToTxn (key 25), versions 0-4: a producer's transaction takes in what it will commit to a group. No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.coordinators.topics import OFFSETS_TOPIC
from headrace.broker.handlers.access import require
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.transactional import for_version
from headrace.broker.txn.events import AddPartitions
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k25_add_offsets_to_txn
from headrace.broker.wire.partitions import TopicPartition

API = k25_add_offsets_to_txn.API
VERSIONS = (0, 4)
REPEATS = True


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    require(broker, call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request["transactional_id"])
    require(broker, call, Operation.READ, ResourceType.GROUP, request["group_id"])
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_for(request["group_id"]))
    add = AddPartitions(
        transactional_id=request["transactional_id"],
        producer=ProducerEpoch(request["producer_id"], request["producer_epoch"]),
        partitions=frozenset((partition,)),
    )
    return broker.transactions.ask(add).map(lambda error: {"error_code": for_version(error, call)})
