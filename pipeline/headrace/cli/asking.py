"""What all commands share that ask brokers through librdkafka: their client, and how its failures become one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.bootstrap_option import require_entrance
from headrace.broker.client.librdkafka import settings_of

Answer = TypeVar("Answer")
CHANGE_SECONDS_MAX: Final = 60.0
"""How long a topic may take to be made or to grow: one of 5,000 partitions takes longer than any question does."""


def asked(what: str, call: Callable[[], Answer]) -> Answer:
    """Return what the brokers answer; a failure becomes the command's one line and exit 1."""
    try:
        return call()
    except KafkaException as error:
        raise failure(what, error) from error


def failure(what: str, error: KafkaException) -> click.ClickException:
    """The command's one line."""
    return click.ClickException(f"{what}: {reason_of(error)}.")


def reason_of(error: KafkaException | KafkaError) -> str:
    """Why it failed, without a full stop."""
    reason: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    name = reason.name()
    if name == "_TIMED_OUT":
        return (
            f"no answer came in time ({reason.str()}); check --bootstrap, and by `headrace cluster status` which brokers answer: "
            "one that got the request may still carry it out"
        )
    if name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE"):
        return f"no broker answered ({reason.str()}); check --bootstrap and that a broker runs there"
    return str(reason.str()).rstrip(".")


def client_settings(bootstrap: Bootstrap) -> dict[str, Any]:
    """For a client of librdkafka, which logs nothing by itself; a cluster that does not let in becomes the command's one line."""
    require_entrance(bootstrap)
    return {**settings_of(bootstrap), "log_level": 0}


def admin_client(bootstrap: Bootstrap) -> AdminClient:
    """A client that logs nothing by itself."""
    return AdminClient(client_settings(bootstrap))
