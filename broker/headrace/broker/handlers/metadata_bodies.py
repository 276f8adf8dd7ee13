"""Encoded Metadata answers that are kept for whoever asks the same."""

from __future__ import annotations

from headrace.broker.auth.principal import Principal

Version = tuple[int, int]
"""Of the metadata cache and of the access control lists."""
Key = tuple[int, str, bytes, tuple[Principal, str] | None]
"""The version, the listener, what was asked, and by whom, where it matters who asks."""


class MetadataBodies:
    """Encoded Metadata answers to what was asked, of one version of what they are made of; at most `SIZE_MAX` bytes."""

    SIZE_MAX = 2 << 20
    ENTRY_SIZE = 512
    """What an entry costs beside its bytes: small requests in great number must not exceed the bound, either."""

    __slots__ = ("_bodies", "_size", "_version")

    def __init__(self) -> None:
        self._version: Version = (-1, -1)
        self._size = 0
        self._bodies: dict[Key, bytes] = {}

    def get(self, version: Version, key: Key) -> bytes | None:
        """The answer as of `version`; what belongs to another one is forgotten."""
        if version != self._version:
            self._clear(version)
        return self._bodies.get(key)

    def put(self, version: Version, key: Key, body: bytes) -> None:
        """Keep an answer; when there is no room all others go."""
        size = len(key[2]) + len(body) + self.ENTRY_SIZE
        if version != self._version or self._size + size > self.SIZE_MAX:
            self._clear(version)
        if size <= self.SIZE_MAX:
            self._bodies[key] = body
            self._size += size

    def _clear(self, version: Version) -> None:
        self._version, self._size = version, 0
        self._bodies.clear()
