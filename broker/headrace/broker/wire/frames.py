"""Frames on a connection, and the headers in front of every request and response.

A frame is a four-byte size and that many bytes. `FrameDecoder` owns a connection's receive buffer: the
shell reads into `writable()` and hands the count to `received()`. The buffer grows with the bytes that
arrive, never ahead of them by more than a factor of two, so an announced size costs nothing by itself.
Knows nothing of sockets.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from headrace.broker.wire.api import APIS
from headrace.broker.wire.fields import EncodeError, MalformedError
from headrace.broker.wire.varint import Bytes, OverlongError, read_uvarint

SIZE_MAX = 100 * 1024 * 1024  # Kafka's default of socket.request.max.bytes

_API_VERSIONS = 18
_CONTROLLED_SHUTDOWN = 7
_PREFIX = 4
_BUFFER_SIZE = 64 * 1024
_BUFFER_SIZE_BUSY = 256 * 1024  # of a sender that fills it: what comes together costs less
_BUFFER_SIZE_KEPT = 2 * 1024 * 1024
_SPACE_MIN = 16 * 1024

_SIZE = Struct(">i")
_REQUEST_HEADER = Struct(">hhih")  # key, version, correlation id, client id's size
_REQUEST_HEADER_FIXED = 8
_CLIENT_ID_AT = 10
_TAGGED_FIELDS_MAX = 100  # Kafka 3.9 knows none: a frame full of them would keep everybody waiting
_CORRELATION_ID = Struct(">i")

_NEVER = 0x8000  # above every int16
_FLEXIBLE_FROM = {key: _NEVER if api.flexible is None else api.flexible for key, api in APIS.items()}
_new_tuple = tuple.__new__


# A record of RFC 8446 that begins a handshake: its type, and the versions that clients put there.
_TLS_HANDSHAKES = range(0x16030000, 0x16040000)


def _refusal(size: int, size_max: int) -> str:
    if size in _TLS_HANDSHAKES:
        return "it speaks TLS, which this listener does not"
    return f"a frame of {size} bytes is not between 0 and {size_max}"


class FrameError(ValueError):
    """A size that no frame may have: close the connection. `frames` are the whole ones before it."""

    def __init__(self, message: str, frames: list[memoryview]) -> None:
        super().__init__(message)
        self.frames = frames


class FrameDecoder:
    """Cuts a stream of bytes into frames of at most `size_max` bytes; where these are small, so is the buffer, which takes
    `capacity` bytes.
    """

    __slots__ = ("_buffer", "_end", "_start", "_view", "_wanted", "capacity", "size_max")

    def __init__(self, size_max: int = SIZE_MAX) -> None:
        self.size_max = size_max
        self._allocate(_BUFFER_SIZE)
        self._start = 0  # of the first frame that is not whole yet
        self._end = 0  # of the bytes received
        self._wanted = 0  # bytes that this frame has in all, its prefix included; 0 when not known yet

    @property
    def pending(self) -> int:
        """Bytes received of a frame that is not whole yet."""
        return self._end - self._start

    def close(self) -> None:
        """Let go of the buffer; frames that somebody still holds stay as they are."""
        self._allocate(0)

    def _allocate(self, size: int) -> None:
        self.capacity = size
        self._buffer = bytearray(size)
        self._view = memoryview(self._buffer)

    def writable(self) -> memoryview:
        """Where to receive next, never empty. Frames handed out before are no longer valid after this
        call.
        """
        capacity = self.capacity
        pending = self._end - self._start
        if self._end == capacity < _BUFFER_SIZE_BUSY and self.size_max > _BUFFER_SIZE:
            self._move_to(capacity * 2, pending)
        elif not pending:
            if capacity > _BUFFER_SIZE_KEPT:
                self._allocate(_BUFFER_SIZE)
            self._start = self._end = 0
        elif capacity - self._end < _SPACE_MIN or self._start + self._wanted > capacity:
            self._make_room(pending, capacity)
        return self._view[self._end :]

    def _make_room(self, pending: int, capacity: int) -> None:
        """Moves the pending bytes to the front; a frame half there that does not fit gets more space."""
        if self._wanted > capacity and pending * 2 > capacity:
            self._move_to(min(capacity * 2, self._wanted), pending)
        elif self._start:
            self._move_to(capacity, pending)

    def _move_to(self, capacity: int, pending: int) -> None:
        old = self._view
        if capacity != self.capacity:
            self._allocate(capacity)
        self._view[:pending] = old[self._start : self._end]
        self._start, self._end = 0, pending

    def received(self, count: int) -> list[memoryview]:
        """The frames that `count` more bytes complete, without their sizes, as writable views.

        Raises FrameError on a size that is negative or above `size_max`.
        """
        view, start = self._view, self._start
        end = self._end = self._end + count
        frames: list[memoryview] = []
        wanted = 0
        while end - start >= _PREFIX:
            (size,) = _SIZE.unpack_from(view, start)
            if not 0 <= size <= self.size_max:
                raise FrameError(_refusal(size, self.size_max), frames)
            stop = start + _PREFIX + size
            if stop > end:
                wanted = _PREFIX + size
                break
            frames.append(view[start + _PREFIX : stop])
            start = stop
        self._start, self._wanted = start, wanted
        return frames


class RequestHeader(NamedTuple):
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def read_request_header(frame: Bytes) -> RequestHeader:
    """The header of a request of any version of a key in `APIS`; whether it is served is not checked.

    Raises MalformedError for an unknown key (its header cannot be read) and for a header that is cut short.
    """
    try:
        key, version, correlation_id, size = _REQUEST_HEADER.unpack_from(frame, 0)
        if key == _CONTROLLED_SHUTDOWN and version == 0:
            return RequestHeader(key, version, correlation_id, None, _REQUEST_HEADER_FIXED)
        offset = _CLIENT_ID_AT + size if size > 0 else _CLIENT_ID_AT
        if offset > len(frame):
            raise MalformedError(f"a client id of {size} bytes runs past the end of the frame")
        client_id = str(frame[_CLIENT_ID_AT:offset], "utf-8", "replace") if size >= 0 else None
        if version >= _FLEXIBLE_FROM[key]:
            offset = _skip_tagged(frame, offset)
    except KeyError:
        raise MalformedError(f"API key {key} is not known") from None
    except (IndexError, StructError, OverlongError) as error:
        raise MalformedError(f"the request header is cut short or broken: {error}") from None
    return _new_tuple(RequestHeader, (key, version, correlation_id, client_id, offset))


def _skip_tagged(frame: Bytes, offset: int) -> int:
    if frame[offset] == 0:
        return offset + 1
    count, offset = read_uvarint(frame, offset)
    if count > _TAGGED_FIELDS_MAX:
        raise MalformedError(f"{count} tagged fields in a header are too many")
    for _ in range(count):
        _, offset = read_uvarint(frame, offset)
        size, offset = read_uvarint(frame, offset)
        offset += size
    if offset > len(frame):
        raise MalformedError("a tagged field of the header runs past the end of the frame")
    return offset


def encode_request_header(key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Header version 0, 1 or 2, as the key and version want it."""
    encoded = (client_id or "").encode()
    try:
        header = _REQUEST_HEADER.pack(key, version, correlation_id, -1 if client_id is None else len(encoded))
    except StructError as error:
        raise EncodeError(f"the request header cannot be written: {error}") from None
    if key == _CONTROLLED_SHUTDOWN and version == 0:
        return header[:_REQUEST_HEADER_FIXED]
    return header + encoded + (b"\x00" if APIS[key].is_flexible(version) else b"")


def response_header_size(key: int, version: int) -> int:
    """4, or 5 with an empty tagged section. ApiVersions never has one: its client knows no version yet."""
    return 5 if key != _API_VERSIONS and APIS[key].is_flexible(version) else 4


def encode_response_header(key: int, version: int, correlation_id: int) -> bytes:
    encoded = _CORRELATION_ID.pack(correlation_id)
    return encoded + b"\x00" if response_header_size(key, version) == 5 else encoded


def read_response_header(key: int, version: int, frame: Bytes) -> tuple[int, int]:
    """(correlation id, offset of the body); raises MalformedError when the header is cut short."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame, 0)
        if response_header_size(key, version) == 4:
            return correlation_id, 4
        return correlation_id, _skip_tagged(frame, 4)
    except (IndexError, StructError, OverlongError) as error:
        raise MalformedError(f"the response header is cut short or broken: {error}") from None


def frame(*parts: Bytes) -> bytes:
    """The parts as one frame, behind their size."""
    return b"".join((_SIZE.pack(sum(map(len, parts))), *parts))
