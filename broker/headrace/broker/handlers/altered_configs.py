"""What AlterConfigs and IncrementalAlterConfigs share: a change for each topic, an answer for each resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.broker.errors import ErrorCode, InvalidRequestError, KafkaError
from headrace.broker.handlers.context import Context

TOPIC = 2
Resource = Mapping[str, Any]
ChangeOf = Callable[[Resource, dict[str, str]], Mapping[str, str]]


async def alter(context: Context, request: Mapping[str, Any], change_of: ChangeOf) -> dict[str, Any]:
    """Give each resource's topic the overrides `change_of(resource, overrides)`."""
    return {"responses": [await _alter(context, r, request, change_of) for r in request["resources"]]}


async def _alter(
    context: Context, resource: Resource, request: Mapping[str, Any], change_of: ChangeOf
) -> dict[str, Any]:
    error, message = ErrorCode.NONE, None
    try:
        if resource["resource_type"] != TOPIC:
            raise InvalidRequestError(
                "Only topics have dynamic configuration: set a broker's in its server.properties."
            )
        await context.cluster.alter_topic_config(
            resource["resource_name"],
            lambda overrides: change_of(resource, overrides),
            validate_only=request["validate_only"],
        )
    except KafkaError as refused:
        error, message = refused.code, str(refused)
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": resource["resource_type"],
        "resource_name": resource["resource_name"],
    }
