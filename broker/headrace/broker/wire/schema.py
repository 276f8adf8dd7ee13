"""One API key of the Kafka protocol: its versions and the fields of its request and response.

Owns the choice of the right reader or writer for a version, made once, when it is first needed, and the
promise that bad bytes raise MalformedError and nothing else. Bodies only: headers are `frames`' matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import error as StructError
from typing import TypeVar

from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire.codec import Budget, Reader, Writer, compile_reader, compile_writer
from headrace.broker.wire.fields import Field, MalformedError, Message, Struct
from headrace.broker.wire.varint import Bytes, OverlongError

REQUEST_ELEMENTS_COUNT_MAX = 100_000
"""Elements of all arrays of one request, and its tagged fields: some keep everybody waiting for 10 µs each. Apache Kafka
bounds a request's bytes only.
"""
CONTROLLER_ELEMENTS_COUNT_MAX = 500_000
"""The same of a request of the controller, which tells of all partitions of a cluster at once."""
CONTROLLER_KEYS = (4, 5, 6)

_C = TypeVar("_C")


@dataclass(frozen=True, slots=True)
class Api:
    """`versions` are the first and last that Apache Kafka 3.9 knows; `flexible` is the first flexible one.

    BYTES and RECORDS decode to views of the buffer that was read: copy what must outlive it.
    """

    key: int
    name: str
    versions: tuple[int, int]
    flexible: int | None
    request: tuple[Field, ...]
    response: tuple[Field, ...]
    _budget: Budget = field(default_factory=Budget, repr=False, compare=False)
    _readers: dict[tuple[str, int], Reader] = field(default_factory=dict, repr=False, compare=False)
    _writers: dict[tuple[str, int], Writer] = field(default_factory=dict, repr=False, compare=False)

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible

    def decode_request(self, version: int, buffer: Bytes, offset: int = 0) -> Message:
        """Raises MalformedError, also for too many elements, or UnsupportedVersionError for a version outside
        `versions`. For one thread.
        """
        is_controllers = self.key in CONTROLLER_KEYS
        self._budget.begin(CONTROLLER_ELEMENTS_COUNT_MAX if is_controllers else REQUEST_ELEMENTS_COUNT_MAX)
        return self._decode("request", version, buffer, offset)

    def decode_response(self, version: int, buffer: Bytes, offset: int = 0) -> Message:
        """Raises MalformedError, or UnsupportedVersionError for a version outside `versions`."""
        return self._decode("response", version, buffer, offset)

    def encode_request(self, version: int, message: Message) -> bytes:
        """Raises EncodeError, or UnsupportedVersionError for a version outside `versions`."""
        return self._encode("request", version, message)

    def encode_response(self, version: int, message: Message) -> bytes:
        """Raises EncodeError, or UnsupportedVersionError for a version outside `versions`."""
        return self._encode("response", version, message)

    def _decode(self, side: str, version: int, buffer: Bytes, offset: int) -> Message:
        read = self._readers.get((side, version)) or self._compiled(
            self._readers,
            self._reader_of_requests if side == "request" else compile_reader,
            side,
            version,
        )
        try:
            message: Message = read(memoryview(buffer), offset)[0]
        except (IndexError, StructError, OverlongError) as error:
            raise MalformedError(
                f"{self.name} {side} version {version} is cut short or broken: {error}"
            ) from None
        return message

    def _encode(self, side: str, version: int, message: Message) -> bytes:
        write = self._writers.get((side, version)) or self._compiled(
            self._writers, compile_writer, side, version
        )
        out = bytearray()
        write(out, message)
        return bytes(out)

    def _compiled(
        self, cache: dict[tuple[str, int], _C], compiler: Callable[..., _C], side: str, version: int
    ) -> _C:
        first, last = self.versions
        if not first <= version <= last:
            raise UnsupportedVersionError(f"{self.name} has versions {first} to {last}, not {version}")
        struct = Struct(*(self.request if side == "request" else self.response))
        return cache.setdefault(
            (side, version), compiler(struct, version, flexible=self.is_flexible(version))
        )

    def _reader_of_requests(self, struct: Struct, version: int, *, flexible: bool) -> Reader:
        return compile_reader(struct, version, flexible=flexible, budget=self._budget)
