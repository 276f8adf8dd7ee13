"""Where schema registries are, and how a client of them is let in.

The settings are those that Confluent's tools have beside Kafka's in one properties file: `schema.registry.ssl.…`, as Kafka's
`ssl.…`, and `schema.registry.basic.auth.user.info`, USER:PASSWORD. Invariant: a secret is in no representation and no error.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from headrace.broker.client.security import HIDDEN, PLAINTEXT, ClientSecurity
from headrace.broker.client.tls_contexts import context_of
from headrace.broker.config.keys import ConfigurationError

PREFIX: Final = "schema.registry."
USER_KEY: Final = f"{PREFIX}basic.auth.user.info"
SOURCE_KEY: Final = f"{PREFIX}basic.auth.credentials.source"
_URL: Final = re.compile(r"https?://[^/?#\s]+", re.IGNORECASE)
KNOWN: Final = (USER_KEY, SOURCE_KEY)


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """`urls` are separated by commas, each `http[s]://[USER:PASSWORD@]HOST[:PORT][/PATH]`. May be pickled, with its secrets."""

    urls: str = field(repr=False)
    user_info: str = field(default="", repr=False)
    security: ClientSecurity = field(default=PLAINTEXT, repr=False)

    @classmethod
    def of(cls, urls: str, properties: Mapping[str, str]) -> RegistryAddress:
        """With what a client's properties say about registries; raises ConfigurationError."""
        for name in properties:
            if name.startswith(PREFIX) and name not in KNOWN and not name.startswith(f"{PREFIX}ssl."):
                allowed = f"none: there are {', '.join(KNOWN)} and {PREFIX}ssl.…"
                raise ConfigurationError(name, HIDDEN, allowed)
        source = properties.get(SOURCE_KEY, "USER_INFO").strip()
        if source not in ("USER_INFO", "URL"):
            raise ConfigurationError(SOURCE_KEY, source, "USER_INFO or URL")
        user_info = properties.get(USER_KEY, "").strip()
        if USER_KEY in properties and ":" not in user_info:
            raise ConfigurationError(USER_KEY, HIDDEN, "USER:PASSWORD")
        return cls(urls, user_info, ClientSecurity.of(properties, PREFIX))

    def each(self) -> Iterator[RegistryAddress]:
        """One registry at a time."""
        for url in self.urls.split(","):
            if url.strip():
                yield RegistryAddress(url.strip().rstrip("/"), self.user_info, self.security)

    @property
    def shown(self) -> str:
        """The URLs without users and passwords."""
        return ",".join(_parted(url)[0] for url in self.urls.split(","))

    @property
    def credentials(self) -> str:
        """USER:PASSWORD of the first URL, or of the settings where it has none; empty without."""
        return _parted(self.urls)[1] or self.user_info

    def context(self) -> ssl.SSLContext | None:
        """What to connect with; None for what the system trusts. Raises ConfigurationError."""
        return context_of(self.security) if self.security.settings else None

    def check(self) -> None:
        """Read the stores that the settings name; raises ConfigurationError, ValueError for what is no URL."""
        for url in self.shown.split(","):
            if not _URL.match(url.strip()):
                raise ValueError(
                    f"{url.strip()!r} is no URL of a registry; write http[s]://HOST[:PORT][/PATH]"
                )
        self.context()

    def __str__(self) -> str:
        return self.shown


def _parted(url: str) -> tuple[str, str]:
    """A URL without its user and password, and these."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    credentials, at, host = authority.rpartition("@")
    if not at:
        return url, ""
    user, _, password = credentials.partition(":")
    return f"{scheme}{separator}{host}{slash}{path}", f"{unquote(user)}:{unquote(password)}"
