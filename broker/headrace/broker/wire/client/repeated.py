"""Answers that are mostly the same as the one before, as metadata of a quiet cluster is: read once, not each time."""

from __future__ import annotations

from typing import Generic, TypeVar

from headrace.broker.wire.client.exchange import Spoken

Q = TypeVar("Q")
A = TypeVar("A")


class Repeated(Generic[Q, A]):
    """An API as its one asker speaks it. Equal bytes of one version are the same object, which nobody may change; so this is
    not for answers with views into what was received.
    """

    def __init__(self, api: Spoken[Q, A]) -> None:
        self._api = api
        self._last: tuple[int, bytes, A] | None = None

    @property
    def key(self) -> int:
        return self._api.key

    @property
    def name(self) -> str:
        return self._api.name

    def encode_request(self, version: int, message: Q, /) -> bytes:
        return self._api.encode_request(version, message)

    def decode_response(self, version: int, buffer: memoryview, offset: int = 0, /) -> A:
        """Raises what the API raises; what could not be read is not remembered."""
        received = buffer[offset:]
        if self._last is not None and self._last[0] == version and self._last[1] == received:
            return self._last[2]
        answer = self._api.decode_response(version, buffer, offset)
        self._last = version, bytes(received), answer
        return answer
