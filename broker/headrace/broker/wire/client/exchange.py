"""One connection as its client sees it: a request in, bytes out; bytes in, an answer out.

Invariants: one request is outstanding at a time, and only its own answer is accepted; an answer has at most
`ANSWER_SIZE_MAX` bytes; answers are received into one buffer that is used again, so views into an answer are valid until
the next request. Versions are agreed on by ApiVersions, or nobody is asked for them and each request says its own. Knows
nothing of sockets: the shells of `headrace.broker.client` carry the bytes.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire import frames
from headrace.broker.wire.api import k18_api_versions

ANSWER_SIZE_MAX = 256 * 1024 * 1024
BUFFER_SIZE_MIN, BUFFER_SIZE_KEPT = 64 * 1024, 16 * 1024 * 1024
VERSIONS_VERSION = 0
"""Of ApiVersions: every broker serves it."""
_PREFIX = 4
_TLS_ALERT = b"\x15\x03"


Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)
Q = TypeVar("Q")
A = TypeVar("A")


class Spoken(Protocol[Q_contra, A_co]):
    """How one API key is written and read: an `Api`, which does it by its table, or one that does it by hand."""

    @property
    def key(self) -> int: ...

    @property
    def name(self) -> str: ...

    def encode_request(self, version: int, message: Q_contra, /) -> bytes: ...

    def decode_response(self, version: int, buffer: memoryview, offset: int = 0, /) -> A_co: ...


class ProtocolError(ConnectionError):
    """The other side closed the connection, or sent what is no answer; the connection is of no use afterwards."""


class Exchange:
    """`negotiates` says whether to ask for versions first: send `versions_request()`, and receive until it is answered."""

    def __init__(self, client_id: str, *, negotiates: bool = True) -> None:
        self.negotiates = negotiates
        self._client_id = client_id
        self._versions: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0
        self._asked: tuple[Spoken[Any, Any], int] | None = None
        self._buffer = memoryview(bytearray(BUFFER_SIZE_MIN))
        self._filled = 0
        self._wanted = _PREFIX

    def version(self, api: Spoken[Any, Any], highest: int) -> int:
        """The version up to `highest` that both sides have; -1 when the other side serves none."""
        if not self.negotiates:
            return highest
        low, high = self._versions.get(api.key, (0, -1))
        return min(high, highest) if low <= highest else -1

    def versions_request(self) -> bytes:
        """The bytes that ask for versions; the answer is taken in as it is received. Raises ProtocolError as `request`."""
        return self._request(k18_api_versions.API, VERSIONS_VERSION, {})

    def request(self, api: Spoken[Q, Any], highest: int, message: Q) -> bytes:
        """The bytes of a request in the version up to `highest` that was agreed on.

        Raises UnsupportedVersionError, or EncodeError for a message that cannot be written: nothing is outstanding then. And
        ProtocolError while the request before is not answered: who gave up on an answer needs another connection.
        """
        version = self.version(api, highest)
        if version < 0:
            raise UnsupportedVersionError(f"the broker does not serve {api.name} up to version {highest}")
        return self._request(api, version, message)

    def _request(self, api: Spoken[Q, Any], version: int, message: Q) -> bytes:
        if self._asked is not None:
            raise ProtocolError("the broker has not answered the request before this one")
        correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = frames.encode_request_header(api.key, version, correlation_id, self._client_id)
        encoded = frames.frame(header, api.encode_request(version, message))
        self._correlation_id = correlation_id
        self._asked = api, version
        self._filled, self._wanted = 0, _PREFIX
        if len(self._buffer) > BUFFER_SIZE_KEPT:
            self._buffer = memoryview(bytearray(BUFFER_SIZE_MIN))
        return encoded

    @property
    def missing(self) -> int:
        """How many bytes are known to be missing of the answer: at first those of its size."""
        return self._wanted - self._filled

    def writable(self) -> memoryview:
        """Where to receive next, never empty while a request is outstanding."""
        if self._wanted == _PREFIX:
            return self._buffer[self._filled :]
        return self._buffer[self._filled : self._wanted]

    def received(self, count: int) -> Any:
        """Take `count` more bytes, 0 for the end of the connection; the answer, as it was asked, once it is whole, else None.

        Raises ProtocolError, or MalformedError for an answer that cannot be read.
        """
        if count == 0:
            raise ProtocolError("the broker closed the connection")
        self._filled += count
        if self._wanted == _PREFIX and self._filled >= _PREFIX:
            self._learn_size()
        if self._filled < self._wanted:
            return None
        return self._answer(self._buffer[_PREFIX : self._wanted])

    def _learn_size(self) -> None:
        size = int.from_bytes(self._buffer[:_PREFIX], "big", signed=True)
        if self._buffer[:2] == _TLS_ALERT:
            raise ProtocolError("the broker speaks TLS on this port: say so with security.protocol")
        if not 0 < size <= ANSWER_SIZE_MAX:
            raise ProtocolError(
                f"the broker announced an answer of {size} bytes, the limit is {ANSWER_SIZE_MAX}"
            )
        self._wanted = _PREFIX + size
        if self._filled > self._wanted:
            raise ProtocolError(f"the broker sent {self._filled - self._wanted} bytes that answer nothing")
        if self._wanted > len(self._buffer):
            begun = self._buffer[: self._filled]
            # Rounded up, so that answers of about one size do not each bring new memory, which is slow.
            self._buffer = memoryview(bytearray(1 << (self._wanted - 1).bit_length()))
            self._buffer[: self._filled] = begun

    def _answer(self, frame: memoryview) -> Any:
        assert self._asked is not None, "bytes come after a request only"
        api, version = self._asked
        correlation_id, offset = frames.read_response_header(api.key, version, frame)
        if correlation_id != self._correlation_id:
            raise ProtocolError(
                f"the broker answered request {correlation_id} instead of {self._correlation_id}"
            )
        self._asked = None
        answer = api.decode_response(version, frame, offset)
        if api is k18_api_versions.API and self.negotiates:
            self._versions = {
                served["api_key"]: (served["min_version"], served["max_version"])
                for served in answer["api_keys"]
            }
        return answer
