"""Where a cluster is asked for, and how a client of it is let in: what a command or a service is told of it.

Asks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.broker.addresses import split_address
from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.client.tls_contexts import context_of
from headrace.broker.wire.client.view import Address


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """`servers` is HOST:PORT[,HOST:PORT]…, which is all that is shown of it. May be pickled, with its secrets."""

    servers: str
    security: ClientSecurity = field(default=PLAINTEXT, repr=False)

    def __str__(self) -> str:
        return self.servers

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Raises ValueError with a sentence."""
        return parse_bootstrap(self.servers)

    def check(self) -> None:
        """Whether a client could be made of it; raises ValueError, or ConfigurationError where a store cannot be used."""
        parse_bootstrap(self.servers)
        if self.security.uses_tls:
            context_of(self.security)


def parse_bootstrap(bootstrap: str) -> tuple[Address, ...]:
    """Parse `host:port[,host:port]…`; raises ValueError with a sentence."""
    addresses: list[Address] = []
    for part in bootstrap.split(","):
        address = split_address(part.strip())
        if address is None or not address[0] or "/" in address[0]:
            raise ValueError(f"{part.strip()!r} is no HOST:PORT; name brokers as HOST:PORT[,HOST:PORT]…")
        addresses.append(address)
    return tuple(addresses)
