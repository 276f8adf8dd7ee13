"""Which limit applies to a client: the most specific of eight levels (KIP-55), and which clients use it up together.

An entity is (user, client id), each sanitized as in the names of znodes, "" where it says nothing of them, or `DEFAULT`, which
no sanitized name can be. From user and client id both down to the default of client ids; an empty client id has no level of its
own. Pure; knows nothing of usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, unquote_plus

DEFAULT = "<default>"
Entity = tuple[str, str]


class Limit(NamedTuple):
    """What one of those that share `bucket` may use."""

    bucket: Entity
    value: float


def sanitized(name: str) -> str:
    """The name as it may stand in a znode's path, and in a metric's (org.apache.kafka.common.utils.Sanitizer)."""
    return quote(name, safe="-_.", errors="replace").replace("~", "%7E")


def desanitized(name: str) -> str:
    """The name again."""
    return unquote_plus(name)


class Limits:
    """The limits of one kind of usage."""

    def __init__(self) -> None:
        self._values: dict[Entity, float] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def set(self, entity: Entity, value: float | None) -> None:
        """None: the entity has no limit of its own any more."""
        if value is None:
            self._values.pop(entity, None)
        else:
            self._values[entity] = value

    def find(self, user: str, client_id: str) -> Limit | None:
        """What applies to a client; both names as they are."""
        user, client_id = sanitized(user), sanitized(client_id)
        for entity, bucket in _levels(user, client_id):
            value = self._values.get(entity)
            if value is not None:
                return Limit(bucket, value)
        return None


def _levels(user: str, client_id: str) -> Iterator[tuple[Entity, Entity]]:
    """(entity, those who share its limit), most specific first."""
    if client_id:
        yield (user, client_id), (user, client_id)
        yield (user, DEFAULT), (user, client_id)
    yield (user, ""), (user, "")
    if client_id:
        yield (DEFAULT, client_id), (user, client_id)
        yield (DEFAULT, DEFAULT), (user, client_id)
    yield (DEFAULT, ""), (user, "")
    if client_id:
        yield ("", client_id), ("", client_id)
        yield ("", DEFAULT), ("", client_id)
