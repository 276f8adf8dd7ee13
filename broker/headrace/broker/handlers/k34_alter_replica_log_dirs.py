"""AlterReplicaLogDirs: versions 0 to 2. Moves replicas to other data directories of this broker (KIP-113).

The answer says that a move was begun; DescribeLogDirs shows how far it is. A directory for a replica that is not here
yet is remembered until it comes, and REPLICA_NOT_AVAILABLE answered. No deviations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k34_alter_replica_log_dirs

API = k34_alter_replica_log_dirs.API
VERSIONS = (0, 2)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    wanted = {
        (topic["name"], partition): directory["path"]
        for directory in request["dirs"]
        for topic in directory["topics"]
        for partition in topic["partitions"]
    }
    rights = access(broker, call)
    if rights and not rights.may_cluster(Operation.ALTER):
        return _answer(dict.fromkeys(wanted, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    codes = broker.later("alter-replica-log-dirs", broker.moves.alter(wanted))
    return codes.map(_answer)


def _answer(codes: Mapping[tuple[str, int], ErrorCode]) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": code})
    return {"results": [{"topic_name": name, "partitions": found} for name, found in topics.items()]}
