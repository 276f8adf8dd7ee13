"""OffsetForLeaderEpoch (key 23), versions 0-4: where a leader epoch ends, for truncation detection (KIP-320)."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.led import led_partition
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k23_offset_for_leader_epoch

API = k23_offset_for_leader_epoch.API
VERSIONS = (0, 4)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    rights, refused = access(broker, call), set()
    # Brokers ask for all topics, clients for those that they may read of.
    if rights and not rights.may_cluster(Operation.CLUSTER_ACTION, quietly=True):
        names = (topic["topic"] for topic in request["topics"])
        refused = rights.refused(Operation.DESCRIBE, ResourceType.TOPIC, names)

    def find(topic: str, wanted: dict[str, Any]) -> dict[str, Any]:
        if topic in refused:
            return {"partition": wanted["partition"], "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        return _find(broker, topic, wanted)

    topics = [
        {
            "topic": topic["topic"],
            "partitions": [find(topic["topic"], wanted) for wanted in topic["partitions"]],
        }
        for topic in request["topics"]
    ]
    return {"topics": topics}


def _find(broker: Services, topic: str, wanted: dict[str, Any]) -> dict[str, Any]:
    index = wanted["partition"]
    try:
        partition = led_partition(broker.partitions, topic, index, wanted["current_leader_epoch"])
    except KafkaError as error:
        return {"partition": index, "error_code": error.code}
    end = partition.log.epoch_end_offset(wanted["leader_epoch"])
    return {
        "partition": index,
        "error_code": 0,
        "leader_epoch": end.leader_epoch,
        "end_offset": end.end_offset,
    }
