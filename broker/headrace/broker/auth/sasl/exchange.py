"""What all mechanisms share: a step of either side, who was found, and how an exchange fails.

Invariant: a text that is told to the other side never says whether a user exists, nor anything of a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

PLAIN, SCRAM_SHA_256, SCRAM_SHA_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


class RefusedError(Exception):
    """The exchange is over: the other side is not who it says it is, or sent what is no message of the mechanism.

    `told` is what a client may be told; None where the reason would say too much, such as that a user does not exist.
    """

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told


def refused_openly(reason: str) -> RefusedError:
    """For a reason that the client may know."""
    return RefusedError(reason, reason)


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Whom a server found: the name of its principal, and until when its credential is good (milliseconds since 1970)."""

    name: str
    expires_at_ms: int | None = None
    is_by_token: bool = False
    """Whether a delegation token was shown in the place of a password."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to send to the client, and who it is once that is certain."""

    answer: bytes
    found: Authenticated | None = None


class ServerExchange(Protocol):
    """One log-in, of one client, as its server sees it; of no use after a RefusedError or when somebody was found."""

    def step(self, message: bytes, now_ms: int) -> Step:
        """Take the client's next message; `now_ms` is the time of day. Raises RefusedError."""
        ...


class ClientExchange(Protocol):
    """One log-in as its client sees it."""

    @property
    def is_done(self) -> bool:
        """Whether the server has shown all that it must, and nothing is left to send."""
        ...

    def step(self, challenge: bytes) -> bytes:
        """What to send next, after what the server sent; the first challenge is empty. Raises RefusedError.

        The answer to the last challenge is empty, and not sent.
        """
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """What a client logs in with: a name and a password, or a bearer token with its extensions, by mechanism."""

    mechanism: str
    name: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False
    """Whether name and password are the id and the HMAC of a delegation token."""
    bearer: str = field(default="", repr=False)
    extensions: tuple[tuple[str, str], ...] = ()
