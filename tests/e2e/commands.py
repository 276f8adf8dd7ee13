"""A `headrace` command run in the test's own process, where what it imports has been imported: a second of CPU less a call.

For commands that end by themselves. That the program does the same is seen where a page's commands run.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from click.testing import CliRunner

from headrace.cli.main import main


@dataclass(frozen=True)
class Done:
    """What a command that ended has left."""

    returncode: int
    stdout: str
    stderr: str


def headrace(*arguments: str, stdin: str = "") -> Done:
    """Run it; what no command expects is raised."""
    listening = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        result = CliRunner().invoke(main, arguments, input=stdin)
    finally:
        for number, handler in listening.items():
            signal.signal(number, handler)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)
