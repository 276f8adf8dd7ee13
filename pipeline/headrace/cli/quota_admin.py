"""Quotas as brokers are asked for them (KIP-546); a negative value is not the broker's concern, but of who types it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.errors import error_of
from headrace.broker.wire.api import k48_describe_client_quotas, k49_alter_client_quotas
from headrace.broker.wire.schema import Api
from headrace.cli.cluster_admin import ClusterAdmin

VERSION: Final = 1
EXACT, DEFAULT = 0, 1
# By the option that names it, in the order in which an entity is told.
TYPES: Final = {"user": "user", "client": "client-id", "ip": "ip"}
KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
Entity = dict[str, str | None]
"""The name of each type that it is of; None is the default of that type."""


def entity_of(named: Mapping[str, Any]) -> Entity:
    """What the options `user`, `default_user` and so on name; raises UsageError."""
    entity: Entity = {}
    for option, kind in TYPES.items():
        name, is_default = named.get(option), named.get(f"default_{option}", False)
        if name is not None and is_default:
            raise click.UsageError(f"--{option} and --default-{option} are two: name one of them.")
        if name == "":
            raise click.UsageError(f"--{option}: the name is empty.")
        if name is not None or is_default:
            entity[kind] = name
    if TYPES["ip"] in entity and len(entity) > 1:
        raise click.UsageError("An address has quotas of its own: name no --user or --client beside it.")
    return entity


def words_of(entity: Mapping[str, str | None]) -> str:
    """The entity as a person says it."""
    return ", ".join(
        f"any other {kind}" if entity[kind] is None else f"{kind} {entity[kind]}"
        for kind in TYPES.values()
        if kind in entity
    )


class QuotaAdmin:
    """Asks through `cluster`, which its owner closes."""

    def __init__(self, cluster: ClusterAdmin) -> None:
        self._cluster = cluster

    def listed(self, entity: Entity, *, is_strict: bool = False) -> list[tuple[Entity, dict[str, float]]]:
        """The entities that are of what is named, or strictly what is named, and their quotas; in order."""
        components = [
            {"entity_type": kind, "match_type": DEFAULT if name is None else EXACT, "match": name}
            for kind, name in entity.items()
        ]

        def ask(link: BlockingLink) -> dict[str, Any]:
            message = {"components": components, "strict": is_strict}
            return _checked(link.ask(k48_describe_client_quotas.API, VERSION, message))

        answer = self._asked(k48_describe_client_quotas.API, ask)
        found = [(_named(entry), _values(entry)) for entry in answer["entries"]]
        return sorted(found, key=lambda each: words_of(each[0]))

    def of(self, entity: Entity) -> dict[str, float]:
        """The quotas of just that entity."""
        return next((values for found, values in self.listed(entity, is_strict=True) if found == entity), {})

    def alter(self, entity: Entity, values: Mapping[str, float | None]) -> None:
        """Set quotas, or remove them (None)."""
        ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
        named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        message = {"entries": [{"entity": named, "ops": ops}], "validate_only": False}

        def ask(link: BlockingLink) -> None:
            for entry in link.ask(k49_alter_client_quotas.API, VERSION, message)["entries"]:
                _checked(entry)

        if ops:
            self._asked(k49_alter_client_quotas.API, ask)

    def _asked(self, api: Api, ask: Any) -> Any:
        return self._cluster.asked(api.name, lambda: ask(self._cluster.any()))


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if answer["error_code"]:
        raise error_of(answer["error_code"], answer["error_message"] or "")
    return answer


def _named(entry: Mapping[str, Any]) -> Entity:
    names = {named["entity_type"]: named["entity_name"] for named in entry["entity"]}
    return {kind: names[kind] for kind in TYPES.values() if kind in names}


def _values(entry: Mapping[str, Any]) -> dict[str, float]:
    return {value["key"]: value["value"] for value in entry["values"]}
