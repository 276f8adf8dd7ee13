"""Who has quotas, as requests name them, as `/config` does, and which of them a filter asks for (KIP-546).

A request names an entity by a name for each type it is of: user and client id, either of them alone, or an address; None
is the default of a type. `/config` names it by a kind and a path below that, sanitized, where None is `<default>`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.broker.errors import ErrorCode, InvalidRequestError, UnknownServerError, error_of
from headrace.broker.quotas.limits import DEFAULT, desanitized, sanitized

USERS, CLIENTS, IPS = "users", "clients", "ips"
USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT_ONLY, SPECIFIED = 0, 1, 2
Entity = Mapping[str, str | None]


class ConfigPath(NamedTuple):
    """Where `/config` keeps an entity."""

    kind: str
    name: str


def place_of(entity: Entity) -> ConfigPath:
    """Raises InvalidRequestError for what cannot have quotas; whether an address is one is not looked at."""
    if not entity:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
    stored = {kind: DEFAULT if name is None else sanitized(name) for kind, name in entity.items()}
    if IP in stored:
        if len(stored) > 1:
            raise InvalidRequestError(
                "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
            )
        return ConfigPath(IPS, stored[IP])
    if USER not in stored:
        return ConfigPath(CLIENTS, stored[CLIENT_ID])
    if CLIENT_ID not in stored:
        return ConfigPath(USERS, stored[USER])
    return ConfigPath(USERS, f"{stored[USER]}/{CLIENTS}/{stored[CLIENT_ID]}")


def entity_at(place: ConfigPath) -> dict[str, str | None]:
    """The entity that `/config` keeps there."""
    if place.kind == IPS:
        return {IP: _named(place.name)}
    if place.kind == CLIENTS:
        return {CLIENT_ID: _named(place.name)}
    user, _, rest = place.name.partition("/")
    if not rest:
        return {USER: _named(user)}
    return {USER: _named(user), CLIENT_ID: _named(rest.removeprefix(f"{CLIENTS}/"))}


def _named(stored: str) -> str | None:
    return None if stored == DEFAULT else desanitized(stored)


class Wanted(NamedTuple):
    """What a filter says of one type of entity; `name` counts where it is EXACT."""

    match_type: int
    name: str | None


class Filter:
    """What DescribeClientQuotas asks for; a strict one wants entities of no other types than it names."""

    def __init__(self, components: Iterable[tuple[str, Wanted]], *, is_strict: bool) -> None:
        """Raises InvalidRequestError, UnknownServerError and the KafkaError of UNSUPPORTED_VERSION."""
        self._is_strict = is_strict
        self._wanted: dict[str, Wanted] = {}
        components = list(components)
        for _, wanted in components:
            if wanted.match_type not in (EXACT, DEFAULT_ONLY, SPECIFIED):
                raise UnknownServerError(f"Unexpected match type: {wanted.match_type}")
            if wanted.match_type == EXACT and wanted.name is None:
                raise UnknownServerError("A name to match exactly is missing.")
        for kind, wanted in components:
            if kind == "":
                raise InvalidRequestError("Unexpected empty filter component entity type")
            if kind not in (USER, CLIENT_ID, IP):
                raise error_of(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
            if kind in self._wanted:
                raise InvalidRequestError(f"Duplicate {kind} filter component entity type")
            self._wanted[kind] = wanted
        if IP in self._wanted and len(self._wanted) > 1:
            raise InvalidRequestError(
                "Invalid entity filter component combination, IP filter component should not be used with "
                "user or clientId filter component."
            )

    @property
    def kinds(self) -> list[str]:
        """Where entities that match can be."""
        wanted, is_strict = self._wanted, self._is_strict
        if IP in wanted:
            return [IPS]
        if USER in wanted:
            return [USERS]
        if CLIENT_ID in wanted:
            return [CLIENTS] if is_strict else [USERS, CLIENTS]
        return [] if is_strict else [USERS, CLIENTS, IPS]

    def matches(self, entity: Entity) -> bool:
        if self._is_strict and entity.keys() != self._wanted.keys():
            return False
        return all(kind in entity and _is(wanted, entity[kind]) for kind, wanted in self._wanted.items())


def _is(wanted: Wanted, name: str | None) -> bool:
    if wanted.match_type == EXACT:
        return name == wanted.name
    return wanted.match_type == SPECIFIED or name is None
