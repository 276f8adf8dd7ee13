"""What all commands share that ask brokers: their options, how failures become one line, and how rows are printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

TIMEOUT_SECONDS: Final = 10.0

Answer = TypeVar("Answer")

bootstrap_option = click.option("--bootstrap", required=True, metavar="HOST:PORT,...", help="Brokers to ask.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def asked(what: str, call: Callable[[], Answer]) -> Answer:
    """Return what the brokers answer; a failure becomes the command's one line and exit 1."""
    try:
        return call()
    except KafkaException as error:
        raise click.ClickException(f"{what}: {reason_of(error)}.") from error


def reason_of(error: KafkaException) -> str:
    """Why it failed, without a full stop."""
    reason = error.args[0]
    name = reason.name()
    if name in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
        return f"no broker answered ({reason.str()}); check --bootstrap and that a broker runs there"
    return str(reason.str()).rstrip(".")


def admin_client(bootstrap: str) -> AdminClient:
    """A client that logs nothing by itself."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def parse_settings(settings: tuple[str, ...]) -> dict[str, str]:
    """Return KEY=VALUE arguments as a dictionary; anything else is wrong use."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise click.UsageError(f"--set {setting}: write KEY=VALUE.")
        parsed[key] = value
    return parsed


def say(result: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    """Print a sentence, or a result as JSON."""
    click.echo(json.dumps(result) if as_json else sentence)


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print rows of the same columns as a table; lists without brackets."""
    table = Table(box=None)
    for name in rows[0] if rows else ():
        table.add_column(name)
    for row in rows:
        table.add_row(*map(cell, row.values()))
    Console().print(table)


def cell(value: Any) -> str:
    """A value for people: a list without brackets."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
