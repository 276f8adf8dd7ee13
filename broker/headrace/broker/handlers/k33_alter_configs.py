"""AlterConfigs (key 33), versions 0-2 (KIP-133). Replaces all overrides of a topic or a broker.

Deviations: a topic keeps its configurations whose names begin with `headrace.mirror.` unless the request names them, or
clients that know Kafka's own configurations only would make a copy a topic that everybody writes to. A broker's keys
are those that this broker can put to use while it runs; others are refused with INVALID_REQUEST. A resource that is
named twice gets INVALID_REQUEST, too; Kafka never answers such a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.config.copies import OWN_TOPIC_CONFIGS
from headrace.broker.handlers.altered_configs import Resource, alter, refuse_nulls
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k33_alter_configs

API = k33_alter_configs.API
VERSIONS = (0, 2)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    return alter(broker, call, request, _replaced)


def _replaced(resource: Resource, overrides: dict[str, str]) -> Mapping[str, str]:
    refuse_nulls(sorted(c["name"] for c in resource["configs"] if c["value"] is None))
    kept = {name: overrides[name] for name in OWN_TOPIC_CONFIGS.keys() & overrides.keys()}
    return kept | {c["name"]: c["value"] for c in resource["configs"]}
