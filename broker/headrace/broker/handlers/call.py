"""One request: what came with it, who sent it and when; an argument of every handler, kept by those that answer later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headrace.broker.auth.principal import ANONYMOUS, Principal
from headrace.broker.quotas.buckets import Rate
from headrace.broker.quotas.usage import Share
from headrace.broker.wire.frames import RequestHeader


class Kept(Protocol):
    """What a handler keeps of a client's requests from one to the next."""

    def close(self) -> None:
        """The client is gone."""
        ...


@dataclass(slots=True)
class Client:
    """Who sends the requests of a connection; `reading` is what its last fetch left to the next.

    `principal` is who its listener found it to be: set before its first request is served, or whenever it authenticates anew;
    `is_by_token`: by a delegation token.
    `mute(throttle_ms)`: nothing more of it is served for so long. `time_share` is where the time counts that its requests take,
    beside that of handling them; None without a limit.
    """

    host: str
    listener: str
    reading: Kept | None = None
    principal: Principal = ANONYMOUS
    is_by_token: bool = False
    mute: Callable[[int], None] = lambda throttle_ms: None
    time_share: Share[Rate] | None = None

    def gone(self) -> None:
        """Its connection is closed."""
        if self.reading is not None:
            self.reading.close()


class Call(NamedTuple):
    """A request; `began_s` is the moment, in seconds of the clock whose `monotonic_ms` handlers read, at which its turn came."""

    header: RequestHeader
    client: Client
    began_s: float
