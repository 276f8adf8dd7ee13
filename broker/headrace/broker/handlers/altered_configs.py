"""What AlterConfigs and IncrementalAlterConfigs share: all but what becomes of a resource's overrides.

Checks that hold for both, a change for each resource, an answer for each in the form that both responses have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import (
    ClusterAuthorizationError,
    ErrorCode,
    InvalidRequestError,
    KafkaError,
    TopicAuthorizationError,
)
from headrace.broker.handlers.access import Access, access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.zk.paths import DEFAULT_ENTITY

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
# Java reads leading zeros, and digits of any script, too; Python refuses to read thousands of them.
_BROKER_ID = re.compile(r"\d{1,100}")
Resource = Mapping[str, Any]
ChangeOf = Callable[[Resource, dict[str, str]], Mapping[str, str]]
AlterLoggers = Callable[[Services, Resource, bool], None]


def config_refusal(rights: Access, resource: Resource, operation: Operation) -> KafkaError | None:
    """Why it may not do that to the configuration of a topic, or, what is of brokers, of the cluster."""
    if resource["resource_type"] == TOPIC:
        may = rights.may(operation, ResourceType.TOPIC, resource["resource_name"])
        return None if may else TopicAuthorizationError("Topic authorization failed.")
    return (
        None if rights.may_cluster(operation) else ClusterAuthorizationError("Cluster authorization failed.")
    )


def alter(
    broker: Services,
    call: Call,
    request: Mapping[str, Any],
    change_of: ChangeOf,
    alter_loggers: AlterLoggers | None = None,
) -> Deferred[dict[str, Any]]:
    """Give each resource, topic or broker, the overrides `change_of(resource, overrides)`; the response comes later.

    What is asked of a broker's loggers `alter_loggers(broker, resource, validate_only)` does; without it, it is refused.
    """
    return broker.later(
        "alter-configs", _altered(broker, access(broker, call), request, change_of, alter_loggers)
    )


async def _altered(
    broker: Services,
    rights: Access | None,
    request: Mapping[str, Any],
    change_of: ChangeOf,
    alter_loggers: AlterLoggers | None,
) -> dict[str, Any]:
    counts = Counter((r["resource_type"], r["resource_name"]) for r in request["resources"])
    answers = []
    for resource in request["resources"]:
        error, message = ErrorCode.NONE, None
        try:
            refusal = config_refusal(rights, resource, Operation.ALTER_CONFIGS) if rights else None
            if refusal is not None:
                raise refusal
            if counts[resource["resource_type"], resource["resource_name"]] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            if resource["resource_type"] == BROKER_LOGGER and alter_loggers:
                _check_keys(resource)
                alter_loggers(broker, resource, request["validate_only"])
            else:
                await _alter(broker, resource, change_of, validate_only=request["validate_only"])
        except KafkaError as refused:
            error, message = refused.code, str(refused)
        answers.append(
            {
                "error_code": error,
                "error_message": message,
                "resource_type": resource["resource_type"],
                "resource_name": resource["resource_name"],
            }
        )
    return {"responses": answers}


async def _alter(broker: Services, resource: Resource, change_of: ChangeOf, *, validate_only: bool) -> None:
    name = resource["resource_name"]
    _check_keys(resource)

    def change(overrides: dict[str, str]) -> Mapping[str, str]:
        return change_of(resource, overrides)

    if resource["resource_type"] == TOPIC:
        if not name:
            raise InvalidRequestError("Default topic resources are not allowed.")
        await broker.configurations.alter_topic(name, change, validate_only=validate_only)
    elif resource["resource_type"] == BROKER:
        check_broker(broker, name)
        await broker.configurations.alter_broker(name or DEFAULT_ENTITY, change, validate_only=validate_only)
    else:
        raise InvalidRequestError(
            f"Only topics ({TOPIC}) and brokers ({BROKER}) have a configuration to change here, "
            f"not resources of type {resource['resource_type']}."
        )


def check_broker(broker: Services, name: str) -> None:
    """Raises InvalidRequestError unless `name` is this broker's id, or empty for all brokers."""
    if name and not (_BROKER_ID.fullmatch(name) and int(name) == broker.broker_id):
        raise InvalidRequestError(
            f"Unexpected broker id, expected {broker.broker_id} or empty string, but received {name}"
        )


def refuse_nulls(names: Sequence[str]) -> None:
    """Raises InvalidRequestError naming the keys that came without the value that they need."""
    if names:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(names)}")


def _check_keys(resource: Resource) -> None:
    doubled = [name for name, n in Counter(c["name"] for c in resource["configs"]).items() if n > 1]
    if doubled:
        raise InvalidRequestError(f"Error due to duplicate config keys : {','.join(doubled)}")
