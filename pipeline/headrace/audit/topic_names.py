"""Which topics a counter counts: names and patterns, as `--topics` gives them.

Owns what a pattern takes: whole names that it matches, but none of the topics that Kafka and headrace keep for themselves; a
counter that took its own counts would never come to an end. A plain name means just that topic, dots included. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container
from dataclasses import dataclass
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+")
SEPARATOR: Final = re.compile(r",(?!\d*\})")
"""A comma, but that of a repetition such as {1,3}."""
_INTERNAL: Final = re.compile(r"__.*|([^.]+[.])?(_schemas|headrace[.].*)")


def is_internal(topic: str) -> bool:
    """Whether a topic is one that Kafka or headrace keeps for itself."""
    return _INTERNAL.fullmatch(topic) is not None


@dataclass(frozen=True, slots=True)
class TopicNames(Container[str]):
    """Holds the names that are given, and all that match a pattern."""

    names: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]

    def __str__(self) -> str:
        return ",".join([*sorted(self.names), *(pattern.pattern for pattern in self.patterns)])

    def __contains__(self, topic: object) -> bool:
        if not isinstance(topic, str):
            return False
        return topic in self.names or (
            not is_internal(topic) and any(pattern.fullmatch(topic) for pattern in self.patterns)
        )

    def missing(self, topics: Collection[str]) -> list[str]:
        """Return the names and patterns that take none of these topics."""
        names = sorted(self.names - set(topics))
        patterns = (item.pattern for item in self.patterns if not any(map(item.fullmatch, topics)))
        return [*names, *patterns]


def parse(text: str) -> TopicNames:
    """Parse names and regular expressions that are separated by commas; raises ValueError with a sentence."""
    parts = [part for part in (piece.strip() for piece in SEPARATOR.split(text)) if part]
    if not parts:
        raise ValueError("name at least one topic.")
    names = frozenset(part for part in parts if _PLAIN.fullmatch(part))
    patterns = []
    for part in (part for part in parts if part not in names):
        try:
            patterns.append(re.compile(part))
        except re.error as error:
            raise ValueError(
                f"{part!r} is neither a topic's name nor a regular expression ({error})."
            ) from error
    return TopicNames(names, tuple(patterns))
