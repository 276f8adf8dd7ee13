"""AlterClientQuotas (key 49), versions 0-1 (KIP-546, KIP-612 from 1): sets and removes quotas in `/config`, entity by entity.

As in Apache Kafka with ZooKeeper a quota of clients below zero is taken, and holds nobody back. No deviations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode, InvalidRequestError, KafkaError
from headrace.broker.handlers.access import Access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.quotas.entities import IPS, Entity, place_of
from headrace.broker.quotas.keys import altered, check_range
from headrace.broker.quotas.limits import DEFAULT
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k49_alter_client_quotas

API = k49_alter_client_quotas.API
VERSIONS = (0, 1)
# What entities are named by: the last of those that a request names twice counts.
EntityKey = tuple[tuple[str, str | None], ...]


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]]:
    entries = [(_entity(entry), entry["ops"]) for entry in request["entries"]]
    if broker.authorizer is not None:
        try:
            Access(broker.authorizer, call).require_cluster(Operation.ALTER_CONFIGS)
        except KafkaError as error:
            return {"entries": [_answer(entity, error) for entity, _ in entries]}
    return broker.later("alter-client-quotas", _altered(broker, entries, request["validate_only"]))


def _entity(entry: Mapping[str, Any]) -> dict[str, str | None]:
    return {named["entity_type"]: named["entity_name"] for named in entry["entity"]}


async def _altered(
    broker: Services, entries: Sequence[tuple[Entity, Sequence[Mapping[str, Any]]]], validate_only: bool
) -> dict[str, Any]:
    answers: dict[EntityKey, dict[str, Any]] = {}
    for entity, ops in entries:
        error = None
        try:
            await _alter(broker, entity, ops, validate_only=validate_only)
        except KafkaError as refused:
            error = refused
        answers[tuple(sorted(entity.items()))] = _answer(entity, error)
    return {"entries": list(answers.values())}


async def _alter(
    broker: Services, entity: Entity, ops: Sequence[Mapping[str, Any]], *, validate_only: bool
) -> None:
    kind, name = place_of(entity)
    if kind == IPS and name != DEFAULT and not await broker.configurations.is_address(name):
        raise InvalidRequestError(f"{name} is not a valid IP or resolvable host.")
    changes = [(op["key"], None if op["remove"] else op["value"]) for op in ops]

    def change(overrides: dict[str, str]) -> Mapping[str, str]:
        changed = altered(kind, overrides, changes)
        if not validate_only:
            check_range(kind, changed)
        return changed

    await broker.configurations.alter_client(kind, name, change, validate_only=validate_only)


def _answer(entity: Entity, error: KafkaError | None) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE if error is None else error.code,
        "error_message": None if error is None else str(error),
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
    }
