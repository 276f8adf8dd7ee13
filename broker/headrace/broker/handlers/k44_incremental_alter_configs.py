"""IncrementalAlterConfigs: versions 0 and 1 (KIP-339). Sets, deletes, appends to and subtracts from a topic's overrides.

Deviation: brokers have no dynamic configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.broker.config import TOPIC_CONFIGS
from headrace.broker.errors import InvalidConfigError, InvalidRequestError
from headrace.broker.handlers.altered_configs import Resource, alter
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.wire.api import k44_incremental_alter_configs
from headrace.broker.wire.frames import RequestHeader

API = k44_incremental_alter_configs.API
VERSIONS = (0, 1)
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    work = alter(context, request, _changed)
    response: Deferred[dict[str, Any]] = context.cluster.later("incremental-alter-configs", work)
    return response


def _changed(resource: Resource, overrides: dict[str, str]) -> Mapping[str, str]:
    doubled = [name for name, n in Counter(c["name"] for c in resource["configs"]).items() if n > 1]
    if doubled:
        raise InvalidRequestError(f"Error due to duplicate config keys : {','.join(doubled)}")
    changed = dict(overrides)
    for config in resource["configs"]:
        _apply(changed, config["name"], config["config_operation"], config["value"])
    return changed


def _apply(overrides: dict[str, str], name: str, operation: int, value: str | None) -> None:
    if operation == DELETE:
        overrides.pop(name, None)
        return
    if value is None:
        raise InvalidRequestError(f"Null value not supported for : {name}")
    if operation == SET:
        overrides[name] = value
        return
    if operation not in (APPEND, SUBTRACT):
        raise InvalidRequestError(f"Unknown operation {operation} on {name}: 0 to 3 are known.")
    if name not in TOPIC_CONFIGS or TOPIC_CONFIGS[name].key.type != "LIST":
        raise InvalidConfigError(f"Config value append is not allowed for config key: {name}")
    items = [item for item in overrides.get(name, ",".join(TOPIC_CONFIGS[name].default)).split(",") if item]
    if operation == APPEND:
        items += [item for item in value.split(",") if item not in items]
    else:
        items = [item for item in items if item not in value.split(",")]
    overrides[name] = ",".join(items)
