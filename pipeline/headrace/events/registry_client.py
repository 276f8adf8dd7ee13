"""One schema registry, asked by confluent-kafka's client; producers and loads both ask it by this.

Owns what that client leaves open: a request is tried once, so that the caller alone says how often and how long; an
answer has a bound; what went wrong is `StatusError` or `NoAnswerError` with a sentence, whichever library raised it;
hosts are trusted as the system trusts them; a redirection is followed. A user and a password in the URL are sent with
each request and stand in no sentence and no log. The client costs a seventh of a second of CPU to import and is, when
the first request is made. Must not know topics, retries or what a schema says.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.events.registry_address import RegistryAddress

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

ANSWER_SIZE_MAX: Final = 16 * 1024 * 1024

MISSING: Final = range(40401, 40500)
"""Codes of a registry's own answers that it has no such subject, version or schema."""

_ADVICE: Final[Mapping[int, str]] = {
    401: ", it lets in users by name and password: check these",
    404: ", is this a schema registry?",
}

Answer = TypeVar("Answer")


class StatusError(Exception):
    """The registry answered with an error: its sentence, or the HTTP status where it has none."""

    def __init__(self, status: int, sentence: str, code: int = 0) -> None:
        super().__init__(sentence)
        self.status = status
        self.is_missing = code in MISSING
        """Whether a registry says that it has no such thing; any server says 404 of a path that it does not serve."""


class NoAnswerError(Exception):
    """Nothing came, or nothing that a schema registry answers; the message says what instead."""


class RegistryClient:
    """Asks the registry of an address with one URL; every method raises both errors.

    Connections are kept: a forked process needs a client of its own.
    """

    def __init__(self, address: RegistryAddress, *, timeout_seconds: float) -> None:
        self.url = address.shown
        """The URL as it may be shown."""
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._client: SchemaRegistryClient | None = None
        self._session: Any = None

    def schema(self, schema_id: int, subject: str) -> Schema:
        """Return the schema that an id means in the name of a subject."""
        schema = self._ask(lambda client: client.get_schema(schema_id, subject))
        if schema.schema_str is None:
            raise NoAnswerError("the answer has no schema, is this a schema registry?")
        return schema

    def version(self, subject: str, version: int) -> RegisteredSchema:
        return self._ask(lambda client: client.get_version(subject, version))

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest version of a subject, as it is now."""
        return self._ask(lambda client: client.get_latest_version(subject))

    def register(self, subject: str, schema: str) -> int:
        """Return the id of an Avro schema under a subject, which it has from now on."""
        from confluent_kafka.schema_registry import Schema

        schema_id: Any = self._ask(lambda client: client.register_schema(subject, Schema(schema, "AVRO")))
        if not isinstance(schema_id, int):
            raise NoAnswerError("the answer has no id, is this a schema registry?")
        return schema_id

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = self._client = None

    def _ask(self, ask: Callable[[SchemaRegistryClient], Answer]) -> Answer:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        client = self._client = self._client or self._opened()
        try:
            return ask(client)
        except SchemaRegistryError as error:
            raise StatusError(error.http_status_code, _sentence(error), error.error_code) from error
        except (AttributeError, KeyError, TypeError) as error:
            raise NoAnswerError("the answer has no schema, is this a schema registry?") from error
        except json.JSONDecodeError as error:
            raise NoAnswerError("the answer is no JSON, is this a schema registry?") from error
        except Exception as error:  # of several libraries, which have no class in common
            raise NoAnswerError(str(error) or type(error).__name__) from error

    def _opened(self) -> SchemaRegistryClient:
        try:
            client = opened_client(self._address, {"timeout": self._timeout_seconds, "max.retries": 0})
        except Exception as error:  # no URL, or no proxy that the environment may name
            raise NoAnswerError(str(error)) from error
        # The client has no setting for these two.
        self._session = client._rest_client.session
        self._session.event_hooks = {"response": [_bound]}
        self._session.follow_redirects = True
        return client


def opened_client(address: RegistryAddress, settings: Mapping[str, Any]) -> SchemaRegistryClient:
    """Confluent's client of one registry, with what its address says of security; raises whatever it raises."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    credentials = {"basic.auth.user.info": address.credentials} if address.credentials else {}
    client = SchemaRegistryClient(
        {
            "url": address.shown,
            "cache.latest.ttl.sec": 0,
            "ssl.ca.location": _trusted(address),
            **credentials,
            **settings,
        }
    )
    context = address.context()
    if context is not None:
        # It takes no context, and stores in files of PEM alone.
        rest: Any = client._rest_client
        kind, auth, timeout = type(rest.session), rest.auth, rest.timeout
        rest.session.close()
        rest.session = kind(verify=context, auth=auth, proxy=rest.proxy, timeout=timeout)
    return client


def import_client() -> None:
    """Import what the first request would: for programs whose first request shall not wait for it."""
    import confluent_kafka.schema_registry  # noqa: F401


def _trusted(address: RegistryAddress) -> str | bool | None:
    """Return where the system keeps the certificates that it trusts; None for the client's own where it has none."""
    if address.shown.startswith("http:") or address.security.settings:
        return False  # nobody to trust, and reading the certificates takes 40 ms
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath


def _sentence(error: SchemaRegistryError) -> str:
    """Return what the registry says, where it says something: the client makes a sentence of anything else."""
    is_said = isinstance(error.error_message, str) and error.error_code != error.UNKNOWN
    status = error.http_status_code
    return error.error_message if is_said else f"HTTP status {status}{_ADVICE.get(status, '')}"


def _bound(response: Any) -> None:
    """Let reading an answer end with an error where it grows too large, unpacked."""
    whole = response.iter_bytes

    def pieces(*arguments: Any) -> Iterator[bytes]:
        size = 0
        for piece in whole(*arguments):
            size += len(piece)
            if size > ANSWER_SIZE_MAX:
                raise ValueError(f"the answer is larger than {ANSWER_SIZE_MAX} bytes")
            yield piece

    response.iter_bytes = pieces
