"""What the commands of `headrace audit` share: options, the wish to stop."""

from __future__ import annotations

import signal
import threading
from typing import Final

import click

from headrace.broker.client.blocking_cluster import parse_bootstrap

RETRY_SECONDS: Final = 1.0


def checked_bootstrap(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse brokers that are not named as they have to be."""
    if value is None:
        return None
    try:
        parse_bootstrap(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


bootstrap_option: Final = click.option(
    "--bootstrap",
    required=True,
    metavar="HOST:PORT,…",
    callback=checked_bootstrap,
    help="Brokers of the cluster: the counted one, or the offline one.",
)


def stop_on_signals() -> threading.Event:
    """Let the round in progress finish, then end."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop
