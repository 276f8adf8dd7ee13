"""Where commands print tables: on a terminal as wide as it is, in a pipe or a file as wide as the tables are, so that nothing
is cut off that a program or `grep` reads.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from rich.console import Console

PIPE_WIDTH: Final = 1_000_000_000


def console(**options: Any) -> Console:
    """A console of rich's with these options of its own, on standard output."""
    return Console(**options) if sys.stdout.isatty() else Console(width=PIPE_WIDTH, **options)
