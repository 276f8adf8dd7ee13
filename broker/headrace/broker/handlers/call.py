"""One request: what came with it, who sent it and when; an argument of every handler, kept by those that answer later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.broker.handlers.fetch.plan import Reading
from headrace.broker.wire.frames import RequestHeader


@dataclass(slots=True)
class Client:
    """Who sends the requests of a connection; `reading` is what it fetches, from one request to the next."""

    host: str
    listener: str
    reading: Reading | None = None

    def gone(self) -> None:
        """Its connection is closed."""
        if self.reading is not None:
            self.reading.close()


class Call(NamedTuple):
    """A request; `began_s` is the moment, in seconds of the monotonic clock, at which its turn came."""

    header: RequestHeader
    client: Client
    began_s: float
