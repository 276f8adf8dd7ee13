"""Kafka's KafkaPrincipal: who the broker takes a client for."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """The type, `User` for whoever a listener authenticates, and a name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """TYPE:NAME, as in `User:alice`; raises ValueError."""
        kind, colon, name = text.partition(":")
        if not colon:
            raise ValueError(f"{text!r} is no principal: give TYPE:NAME, as in User:alice")
        return cls(kind, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Whoever came by a listener that authenticates nobody."""
