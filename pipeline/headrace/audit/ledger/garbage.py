"""How often Python looks for circles among an auditor's objects: a ledger has millions of them and no circle, and to look through
all of them after every 700 new ones, as is usual, takes two fifths of a round. What is in no circle is freed at once, as ever.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

THRESHOLDS: Final = (50_000, 20, 20)
"""New objects before the youngest are looked through; how often that is done before the next older ones are, too."""


def collect_seldom() -> None:
    """From now on, in this process."""
    gc.set_threshold(*THRESHOLDS)


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """While a ledger is made into lists, or the other way round: all of them stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
