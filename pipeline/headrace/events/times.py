"""Times of events as Python has them, and plain numbers where it has none.

Owns the rule for what people see: an Avro time may lie before the year 1 or after 9999, where Python's `datetime` ends. It is
then the number of milliseconds since 1970, a date the number of days, and a time of day that no day has its milliseconds.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_LOCAL: Final = datetime(1970, 1, 1)
DAY_US: Final = 86_400_000_000


def moment(time_us: int, epoch: datetime = EPOCH) -> datetime | int:
    """Return a time that is given in microseconds since 1970, as milliseconds where Python lacks it."""
    try:
        return epoch + timedelta(microseconds=time_us)
    except OverflowError:
        return time_us // 1000


def day(days: int) -> date | int:
    """Return a date that is given in days since 1970, the same number where Python lacks it."""
    try:
        return EPOCH.date() + timedelta(days=days)
    except OverflowError:
        return days


def time_of_day(time_us: int) -> time | int:
    """Return a time of day that is given in microseconds since midnight, as milliseconds where no day has it."""
    if not 0 <= time_us < DAY_US:
        return time_us // 1000
    return (EPOCH_LOCAL + timedelta(microseconds=time_us)).time()


AVRO_READERS: Final[Mapping[str, Callable[..., Any]]] = {
    "long-timestamp-millis": lambda value, *_: moment(value * 1000),
    "long-timestamp-micros": lambda value, *_: moment(value),
    "long-local-timestamp-millis": lambda value, *_: moment(value * 1000, EPOCH_LOCAL),
    "long-local-timestamp-micros": lambda value, *_: moment(value, EPOCH_LOCAL),
    "int-date": lambda value, *_: day(value),
    "int-time-millis": lambda value, *_: time_of_day(value * 1000),
    "long-time-micros": lambda value, *_: time_of_day(value),
}
"""For fastavro's `LOGICAL_READERS`, whose own readers raise OverflowError for such times."""
