"""Further warehouses that are loaded from the same offline cluster: each has a ledger of its own, and is a tier of its own.

Owns which topics such a ledger is about and what of its outcome the report of the first warehouse tells: the hop to it alone,
since what happens before it is told once. Invariants: no number of one warehouse is another's; a pipeline without further ones is
told as if there were none. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headrace.audit.histogram import Histogram
from headrace.audit.latency import Hop
from headrace.audit.outcome import (
    RANKS,
    VERDICTS,
    Counts,
    FurtherWarehouse,
    Incomplete,
    Outcome,
    Topic,
    Verdict,
    verdict_of,
    verdicts,
)
from headrace.audit.parcels import is_rejected
from headrace.audit.topic_names import TopicNames
from headrace.load.tables import split_topic

HOP: Final[Hop] = "offline_to_warehouse"
SPANS: Final = (HOP, "end_to_end")
"""The latencies that end in a warehouse."""
FURTHER_MAX: Final = 8
"""Further warehouses of one audit: each costs as much as the first one, and is a label of metrics."""
NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,30}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Further(Container[str]):
    """Names a further warehouse, and holds the topics of the offline cluster that are loaded into it: none without a datacenter,
    and none of rejected lines.
    """

    name: str
    location: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of its catalog, where it is not the one in its folder."""
    topics: TopicNames | None = None
    """By their names in the offline cluster; None: all."""

    def __contains__(self, topic: object) -> bool:
        if not isinstance(topic, str):
            return False
        datacenter, name = split_topic(topic)
        return bool(datacenter) and not is_rejected(name) and (self.topics is None or topic in self.topics)

    @property
    def scope(self) -> str:
        """The topics in words."""
        return "" if self.topics is None else str(self.topics)


def add_further(outcome: Outcome, name: str, found: Outcome, latencies: Mapping[str, Histogram]) -> None:
    """Add what the ledger of a further warehouse says of the hop to it, in the same period."""
    outcome.further[name] = FurtherWarehouse(
        topics={
            key: _of_hop(counts, found.hops.get((*key, HOP), Counts()))
            for key, counts in found.topics.items()
            if key not in outcome.off
        },
        watermarks=found.watermarks,
        latencies=latencies,
    )
    told = set(outcome.incomplete)
    outcome.findings += [replace(item, warehouse=name) for item in found.findings if item.hop == HOP]
    outcome.incomplete += [
        replace(item, warehouse=name) for item in found.incomplete if _is_own(item) and item not in told
    ]
    _judge(outcome)


def add_unread(outcome: Outcome, name: str, reason: str) -> None:
    """Add that a further warehouse could not be read the last time; what was read before is told besides."""
    outcome.further.setdefault(name, FurtherWarehouse(topics={}, watermarks={}, latencies={}))
    said = f"it cannot be read now: {reason}"
    outcome.incomplete.append(
        Incomplete(datacenter="", topic="", producer="", reason=said, hop=HOP, warehouse=name)
    )
    _judge(outcome)


def verdict_at(outcome: Outcome, name: str) -> Verdict:
    """Return the verdict of the hop to a further warehouse alone."""
    of_it = replace(
        outcome,
        findings=[item for item in outcome.findings if item.warehouse == name],
        incomplete=[item for item in outcome.incomplete if item.warehouse == name],
    )
    return verdict_of(item.verdict for item in verdicts(of_it))


def faults(outcome: Outcome) -> dict[Topic, Counts]:
    """Return the faults of the hops to all further warehouses together, by topic."""
    found: dict[Topic, Counts] = {}
    for warehouse in outcome.further.values():
        for key, counts in warehouse.topics.items():
            found.setdefault(key, Counts()).add(counts)
    return found


def _of_hop(counts: Counts, hop: Counts) -> Counts:
    return replace(hop, offline=counts.offline, warehouse=counts.warehouse)


def _is_own(item: Incomplete) -> bool:
    """Whether a reason is of the hop, or of what could not be read for this ledger."""
    return item.hop == HOP or not (item.hop or item.topic)


def _judge(outcome: Outcome) -> None:
    # The worst ones first, as those of the first warehouse are.
    outcome.findings.sort(key=lambda item: -RANKS[VERDICTS[item.kind]])
    outcome.verdict = verdict_of(item.verdict for item in verdicts(outcome))
