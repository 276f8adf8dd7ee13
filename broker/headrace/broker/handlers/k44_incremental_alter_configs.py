"""IncrementalAlterConfigs (key 44), versions 0-1 (KIP-339): sets, deletes, appends to and subtracts from overrides.

Levels of this broker's loggers are set and deleted in the same way (KIP-412, `broker_loggers`).

Deviations: a broker's keys are those that this broker can put to use while it runs; others are refused with
INVALID_REQUEST, as are unknown operations (Kafka: UNKNOWN_SERVER_ERROR for those on a topic).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.config.broker import BROKER_KEYS, default_of_broker
from headrace.broker.config.topics import STORED_TOPIC_CONFIGS, TOPIC_CONFIGS
from headrace.broker.errors import InvalidConfigError, InvalidRequestError
from headrace.broker.handlers import broker_loggers
from headrace.broker.handlers.altered_configs import BROKER, Resource, alter, refuse_nulls
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k44_incremental_alter_configs

API = k44_incremental_alter_configs.API
VERSIONS = (0, 1)
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    return alter(broker, call, request, _changed, _alter_loggers)


def _alter_loggers(broker: Services, resource: Resource, validate_only: bool) -> None:
    _refuse_missing(resource)
    broker_loggers.alter(broker, resource["resource_name"], resource["configs"], validate_only=validate_only)


def _refuse_missing(resource: Resource) -> None:
    refuse_nulls(
        [c["name"] for c in resource["configs"] if c["value"] is None and c["config_operation"] != DELETE]
    )


def _changed(resource: Resource, overrides: dict[str, str]) -> Mapping[str, str]:
    _refuse_missing(resource)
    changed = dict(overrides)
    for config in resource["configs"]:
        _apply(resource["resource_type"], changed, config)
    return changed


def _apply(resource_type: int, overrides: dict[str, str], config: Mapping[str, Any]) -> None:
    name, operation, value = config["name"], config["config_operation"], config["value"]
    if operation == DELETE:
        overrides.pop(name, None)
    elif operation == SET:
        overrides[name] = value
    elif operation in (APPEND, SUBTRACT):
        old = overrides.get(name, _default_items(resource_type, name))
        overrides[name] = ",".join((_appended if operation == APPEND else _subtracted)(old, value.split(",")))
    else:
        raise InvalidRequestError(f"Unknown operation {operation} on {name}: 0 to 3 are known.")


def _default_items(resource_type: int, name: str) -> str:
    """The default of a list, which is what an item is appended to or taken from when there is no override."""
    keys = {n: (c.key, c.default) for n, c in (TOPIC_CONFIGS | STORED_TOPIC_CONFIGS).items()}
    if resource_type == BROKER:
        keys = {n: (key, default_of_broker(n)) for n, (_, key) in BROKER_KEYS.items()}
    if name not in keys or keys[name][0].type != "LIST":
        raise InvalidConfigError(f"Config value append and subtract are not allowed for config key: {name}")
    return ",".join(keys[name][1])


def _appended(old: str, items: list[str]) -> list[str]:
    present = [item for item in old.split(",") if item]
    return present + [item for item in items if item not in present]


def _subtracted(old: str, items: list[str]) -> list[str]:
    return [item for item in old.split(",") if item not in items]
