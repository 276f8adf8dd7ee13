"""UpdateFeatures: versions 0 and 1. Finalized features change (KIP-584): brokers of ZooKeeper mode support none.

So nothing can be finalized and nothing deleted: each update is refused, as by Apache Kafka 3.9, and only no update at all
succeeds. No deviations.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k57_update_features

API = k57_update_features.API
VERSIONS = (0, 1)
FIRST_VERSION_WITH_UPGRADE_TYPE = 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    rights = access(broker, call)
    if rights and not rights.may_cluster(Operation.ALTER):
        return {
            "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "error_message": "Cluster authorization failed.",
        }
    if not broker.control.is_controller:
        return {
            "error_code": ErrorCode.NOT_CONTROLLER,
            "error_message": "This is not the correct controller for this cluster.",
        }
    updates = {update["feature"]: update for update in request["feature_updates"]}
    return {
        "error_message": None,
        "results": [
            {
                "feature": feature,
                "error_code": ErrorCode.INVALID_REQUEST,
                "error_message": _reason(update, _upgrade_type(call.header.version, update)),
            }
            for feature, update in updates.items()
        ],
    }


def _upgrade_type(version: int, update: dict[str, Any]) -> int:
    if version >= FIRST_VERSION_WITH_UPGRADE_TYPE:
        return int(update["upgrade_type"])
    return SAFE_DOWNGRADE if update["allow_downgrade"] else UPGRADE


def _reason(update: dict[str, Any], upgrade_type: int) -> str:
    if not update["feature"]:
        return "Feature name can not be empty."
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "Received unknown upgrade type."
    if update["max_version_level"] >= 1:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if upgrade_type != UPGRADE:
        return "Can not delete non-existing finalized feature."
    return (
        f"Can not provide versionLevel: {update['max_version_level']} less than 1 without setting the SAFE downgradeType "
        "in the request."
    )
