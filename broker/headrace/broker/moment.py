"""A moment as a person writes it, on a command line or in a configuration."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final

import click

_AGO: Final = re.compile(r"(\d{1,9})([smhd])")
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Moment(click.ParamType[int]):
    """A time as ISO 8601 (UTC where it names no zone), or how long ago, such as 15m or 24h; becomes milliseconds."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        ago = _AGO.fullmatch(value)
        if ago:
            return now_ms() - int(ago[1]) * _UNITS_MS[ago[2]]
        try:
            return moment_ms(value)
        except ValueError:
            self.fail(
                f"{value!r} is no time: write 2026-01-31T23:59:50Z, or how long ago, such as 90s, 15m, 24h or 7d.",
                param,
                ctx,
            )


def moment_ms(text: str) -> int:
    """The milliseconds of a time as ISO 8601, UTC where it names no zone; raises ValueError."""
    found = datetime.fromisoformat(text)
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
