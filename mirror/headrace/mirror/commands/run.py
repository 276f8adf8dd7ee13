"""`headrace mirror run`: a member of aggregate mode in a process of its own, beside a cluster of any engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

from headrace.broker import structured_log
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.properties import parse_properties
from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
USAGE_ERROR = 2


@click.command("run", epilog="Example: headrace mirror run --config mirror.properties")
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A properties file with the target, mirror.member.id and the sources.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def run(path: Path, log_level: str) -> None:
    """Bring several datacenters into one topic of a cluster of another engine, such as Apache Kafka.

    \b
    Runs in the foreground and prints `ready MEMBER` once it takes part. Run several, each with a
    number of its own: they share the sources' partitions, and one that is killed loses nothing.
    """
    structured_log.configure(log_level)
    # The libraries of a process that serves are only needed here.
    from headrace.mirror import member
    from headrace.mirror.member_config import MemberConfig

    try:
        properties = parse_properties(path.read_text(encoding="utf-8"))
        member.run(
            MemberConfig.from_properties(properties), lambda number: print(f"ready {number}", flush=True)
        )
    except (ConfigurationError, UnicodeDecodeError, OSError) as error:
        _give_up(f"{path}: {error}", USAGE_ERROR)
    except member.CannotStartError as error:
        _give_up(str(error), 1)


def _give_up(message: str, code: int) -> NoReturn:
    """End with a line for the log and, last, the sentence that a person at a terminal looks for."""
    logger.error("cannot go on", reason=message, exit_code=code)
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)
