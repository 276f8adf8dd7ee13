"""How topics are audited: by their events, by their batch headers alone, or not at all.

Owns the one setting that says so, by topics' names and patterns, as `--modes` gives it: NAME|REGEX=MODE, separated by commas. A
name or pattern is of the topic in its live datacenter, so that all counters of a pipeline have the same setting; the first that
takes a topic decides. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from headrace.audit import topic_names
from headrace.audit.topic_names import TopicNames

Mode = Literal["events", "headers", "off"]
EVENTS: Final[Mode] = "events"
CHANGES_MAX: Final = 100
"""Changes of a topic's mode that are remembered, the last ones."""
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


def mode_of(text: object) -> Mode:
    """Return a mode by its name; raises ValueError."""
    if text not in MODES:
        raise ValueError(
            f"{text!r} is no way to audit a topic: write {', '.join(MODES[:-1])} or {MODES[-1]}."
        )
    return text


@dataclass(frozen=True, slots=True)
class TopicModes(Container[str]):
    """Holds the topics to count: those of `wanted` that no rule turns off, and those that a rule wants counted by headers.

    With `is_copies` the first part of a topic's name is the datacenter that it comes from; `wanted` has whole names. One without
    a datacenter is an aggregate, or another topic of the offline cluster's own: rules are about those that `wanted` names.
    """

    wanted: TopicNames
    rules: tuple[tuple[TopicNames, Mode], ...] = ()
    is_copies: bool = False

    def mode(self, topic: str) -> Mode | None:
        """Return how a topic is audited; None: nobody said so."""
        source = topic.partition(".")[2] if self.is_copies else topic
        if not source and topic in self.wanted:
            source = topic
        for names, mode in self.rules if source and not topic_names.is_internal(topic) else ():
            if source in names:
                return mode
        return "events" if topic in self.wanted else None

    def __contains__(self, topic: object) -> bool:
        return isinstance(topic, str) and self.mode(topic) in ("events", "headers")

    def __str__(self) -> str:
        rules = [f"{names}={mode}" for names, mode in self.rules]
        return ",".join([str(self.wanted), *rules])

    def others(self, topics: Iterable[str]) -> dict[str, Mode]:
        """Return the modes of those topics that are not audited by their events."""
        modes = ((topic, self.mode(topic)) for topic in topics)
        return {topic: mode for topic, mode in modes if mode in ("headers", "off")}

    @property
    def takes_any(self) -> bool:
        """Whether there may be a topic to count."""
        is_wanted = bool(self.wanted.names or self.wanted.patterns)
        return is_wanted or any(mode == "headers" for _, mode in self.rules)

    def missing(self, topics: Collection[str]) -> list[str]:
        """Return the wanted names and patterns that take none of these topics, but for what is turned off."""
        return [name for name in self.wanted.missing(topics) if self.mode(name) != "off"]


def parse(text: str) -> tuple[tuple[TopicNames, Mode], ...]:
    """Parse NAME|REGEX=MODE,…; raises ValueError with a sentence."""
    rules = []
    for part in filter(None, (piece.strip() for piece in topic_names.SEPARATOR.split(text))):
        names, equals, mode = part.rpartition("=")
        if not equals or not names:
            raise ValueError(f"{part!r} is no NAME|REGEX=MODE.")
        rules.append((topic_names.parse(names), mode_of(mode)))
    return tuple(rules)


@dataclass(slots=True)
class ModesOverTime:
    """How each (datacenter, topic) was audited from when on, as the counter of its live datacenter says; otherwise by events."""

    changes: dict[tuple[str, str], list[tuple[int, Mode]]] = field(default_factory=dict)

    def take(self, datacenter: str, modes: Mapping[str, Mode], counted: Iterable[str], at_ms: int) -> None:
        """Take what a counter says of the topics that are not audited by their events; those others that it counts are."""
        for topic, mode in {**dict.fromkeys(counted, EVENTS), **modes}.items():
            if mode != self.now(datacenter, topic):
                changes = self.changes.setdefault((datacenter, topic), [])
                changes.append((at_ms, mode))
                del changes[:-CHANGES_MAX]

    def now(self, datacenter: str, topic: str) -> Mode:
        changes = self.changes.get((datacenter, topic))
        return changes[-1][1] if changes else "events"

    def at(self, datacenter: str, topic: str, time_ms: int) -> Mode:
        """Return how a topic was audited at a time of the counter's clock."""
        found: Mode = "events"
        for since_ms, mode in self.changes.get((datacenter, topic), ()):
            found = mode if since_ms <= time_ms else found
        return found

    def off(self) -> set[tuple[str, str]]:
        """Return the topics that are not audited now."""
        return {topic for topic in self.changes if self.now(*topic) == "off"}
