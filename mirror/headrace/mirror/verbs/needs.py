"""Which rows of an overview need a person, with a sentence for each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from headrace.mirror.copy.copier import PAUSED
from headrace.mirror.memory.reports import ANSWERS, NOT_LISTED
from headrace.mirror.verbs.overview import BROUGHT, COPYING, LEFT_OUT, NOT_MIRRORED, Row

AGGREGATE_IN_ORDER = frozenset({COPYING, "locating", PAUSED})
IN_ORDER = frozenset({COPYING, NOT_LISTED, NOT_MIRRORED, LEFT_OUT, PAUSED})
"""What a person decided: a topic that was deleted at its source, is left out or paused, a source that is no longer configured."""
SOUND_STATES: Final[Mapping[str, Collection[str]]] = {
    "sources": {ANSWERS},
    "topics": (),
    "partitions": IN_ORDER,
    "aggregates": AGGREGATE_IN_ORDER,
    "syncs": {BROUGHT},
}
SUBJECTS: Final[Mapping[str, Callable[[Row], str]]] = {
    "sources": lambda row: f"source {row['source']} at {row['bootstrap']}, for broker {row['broker']}",
    "topics": lambda row: f"topic {row['topic']} of {row['source']}",
    "partitions": lambda row: f"partition {row['topic']}-{row['partition']}",
    "aggregates": lambda row: f"{row['source']} into partition {row['topic']}-{row['partition']}",
    "syncs": lambda row: f"{row['what']} of {row['source']}, by broker {row['broker']}",
}


def needs(found: Mapping[str, Collection[Row]], lag_max: int | None = None) -> list[str]:
    """One sentence for each row that needs a person; with `lag_max` also for copies and aggregates that are further behind, or
    nobody knows how far.
    """
    return [
        f"{SUBJECTS[name](row)}: {reason}"
        for name in SUBJECTS
        for row in found[name]
        for reason in _reasons(name, row, lag_max)
    ]


def _reasons(name: str, row: Row, lag_max: int | None) -> Iterator[str]:
    state = row.get("state", "no whole copy")
    if state not in SOUND_STATES[name]:
        yield ": ".join(filter(None, (state, row["reason"])))
    elif lag_max is not None and state == COPYING:
        yield from _slowness(row["lag"], lag_max)


def _slowness(lag: int | None, lag_max: int) -> Iterator[str]:
    if lag is None:
        yield "nobody knows how far it is behind its source"
    elif lag > lag_max:
        yield f"it is {lag:,} messages behind its source"
