"""DescribeClientQuotas (key 48), versions 0-1 (KIP-546, KIP-612 from 1): quotas of users, client ids and addresses, as `/config`
holds them now. No deviations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import KafkaError, UnknownServerError
from headrace.broker.handlers.access import Access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.quotas.entities import ConfigPath, Filter, Wanted, entity_at
from headrace.broker.quotas.keys import known_of, number
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k48_describe_client_quotas

API = k48_describe_client_quotas.API
VERSIONS = (0, 1)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    try:
        if broker.authorizer is not None:
            Access(broker.authorizer, call).require_cluster(Operation.DESCRIBE_CONFIGS)
        wanted = Filter(
            [(c["entity_type"], Wanted(c["match_type"], c["match"])) for c in request["components"]],
            is_strict=request["strict"],
        )
    except KafkaError as error:
        return _refused(error)
    return broker.later("describe-client-quotas", _described(broker, wanted))


def _refused(error: KafkaError) -> dict[str, Any]:
    return {"error_code": error.code, "error_message": str(error), "entries": None}


async def _described(broker: Services, wanted: Filter) -> dict[str, Any]:
    entries = []
    try:
        for kind in wanted.kinds:
            for name, overrides in (await broker.configurations.stored_of_clients(kind)).items():
                entity = entity_at(ConfigPath(kind, name))
                values = _values(kind, overrides) if wanted.matches(entity) else []
                if values:
                    entries.append({"entity": _named(entity), "values": values})
    except KafkaError as error:
        return _refused(error)
    return {"entries": entries}


def _values(kind: str, overrides: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        return [
            {"key": key, "value": number(text)} for key, text in overrides.items() if key in known_of(kind)
        ]
    except ValueError as error:
        raise UnknownServerError(f"Unexpected client quota configuration value: {error}") from None


def _named(entity: Mapping[str, str | None]) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
