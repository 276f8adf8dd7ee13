"""Reading many znodes with one request, which ZooKeeper has had since 3.6 and kazoo does not know.

A request for each costs kazoo two wake-ups of its thread and ZooKeeper one: together they cost a tenth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, NoNodeError, SessionClosedRequireSaslError
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    int_struct,
    multiheader_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

_END = multiheader_struct.pack(-1, True, -1)
_FIRST = MultiHeader(GetData.type, False, -1).serialize()
_ERROR = -1


class MultiRead:
    """`multiRead` of ZooKeeper's protocol, for the data of znodes."""

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        """The operations, each behind its header, and the end."""
        operations = (_FIRST + GetData(path, None).serialize() for path in self._paths)
        return b"".join([*operations, _END])

    def deserialize(self, answer: bytes, offset: int) -> list[tuple[bytes, Any] | None]:
        """(data, stat) of each znode; None where there is none. Raises the error of any other failure."""
        found: list[tuple[bytes, Any] | None] = []
        header, offset = MultiHeader.deserialize(answer, offset)
        while not header.done:
            if header.type == _ERROR:
                (code,) = int_struct.unpack_from(answer, offset)
                offset += int_struct.size
                if code != NoNodeError.code:
                    raise EXCEPTIONS[code]()
                found.append(None)
            else:
                data, offset = read_buffer(answer, offset)
                found.append((data, ZnodeStat._make(stat_struct.unpack_from(answer, offset))))
                offset += stat_struct.size
            header, offset = MultiHeader.deserialize(answer, offset)
        return found


class ReadingKazoo(KazooClient):  # type: ignore[misc]
    """kazoo's client, that can read many znodes at once, and log in as another from the next connection on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._log_in, self._connection._authenticate_with_sasl = (
            self._connection._authenticate_with_sasl,
            self._logged_in,
        )

    def _logged_in(self, host: str, timeout: float) -> None:
        """A server that lets in nobody without a log-in has a word of its own for a refused one, which kazoo does not expect."""
        try:
            self._log_in(host, timeout)
        except SessionClosedRequireSaslError as error:
            raise AuthFailedError(str(error)) from error

    def log_in_as(self, user: str, password: str) -> None:
        """For a client that was made with options of SASL."""
        self._connection.sasl_options |= {"username": user, "password": password}

    def get_many_async(self, paths: Sequence[str]) -> Any:
        """An asynchronous result of what `MultiRead` answers; UnimplementedError from servers before ZooKeeper 3.6."""
        result = self.handler.async_result()
        self._call(MultiRead([f"{self.chroot}{path}" for path in paths]), result)
        return result
