"""What all commands share that ask brokers, whatever client they ask with: options, patience, and how answers are printed."""

from __future__ import annotations

import json
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from headrace.broker.client import bootstrap_option as options
from headrace.broker.console import console

TIMEOUT_SECONDS: Final = 10.0

bootstrap_option = options.bootstrap_option("Brokers to ask.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def parse_settings(settings: tuple[str, ...]) -> dict[str, str]:
    """Return KEY=VALUE arguments as a dictionary; anything else, and a key given twice, is wrong use."""
    parsed = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise click.UsageError(f"--set {setting}: write KEY=VALUE.")
        if key in parsed:
            raise click.UsageError(f"--set {key}: it is set twice; give it one value.")
        parsed[key] = value
    return parsed


def no_such_topic(topic: str) -> click.ClickException:
    return click.ClickException(f"topic {topic} does not exist; `headrace topics list` shows those that do.")


def some_missing(what: str, why: str) -> click.ClickException:
    """For a list of which some brokers told nothing, once that of the others is printed; `why` without a full stop."""
    return click.ClickException(f"{what}: some may be missing, since {why}.")


def say(result: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    """Print a sentence, or a result as JSON."""
    click.echo(json.dumps(result) if as_json else sentence)


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print rows of the same columns as a table; lists without brackets, and what is styled text as it is."""
    table = Table(box=None)
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else Text(cell(value)) for value in row.values()))
    console().print(table)


def cell(value: Any) -> str:
    """A value for people: a list without brackets."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
