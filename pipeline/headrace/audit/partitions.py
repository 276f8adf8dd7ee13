"""The mirror's partitions as the counts of both clusters and the mirror's findings show them, the worst first.

Owns the words for a partition's state. Positions are those of the audit's own counters; what brokers themselves say of their
sources is `headrace mirror status`'s matter. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.coverage import Coverage
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.parcels import Counter
from headrace.audit.records import MirrorFinding

STOPPED: Final = "stopped"
UNCOUNTED: Final = "not counted"
BEHIND: Final = "behind"
IN_STEP: Final = "in step"
RANKS: Final = {STOPPED: 0, UNCOUNTED: 1, BEHIND: 2, IN_STEP: 3}
STOPPING: Final = frozenset({"gap", "truncation", "recreation", "format"})
"""The mirror's findings after which a partition stands until a person lets it go on."""

PartitionRow = dict[str, Any]


def partition_rows(ledger: Ledger) -> list[PartitionRow]:
    """Return a row for each partition that any cluster counts; what is not known is None.

    `lag` and `load_lag` are offsets that the live log has beyond the copy, and the copy beyond the table. `copied_until` is the
    live counter's time up to which the copy has all that it had counted.
    """
    stops = dict(_stops(ledger))
    # An aggregate's partition has no offsets in common with those that it is made of.
    places = [place for found in ledger.reach.places.values() for place in found if place.datacenter]
    rows = [_row(ledger, place, stops.get(place)) for place in places]
    rows.sort(key=lambda row: (RANKS[row["state"]], -(row["lag"] or 0), -(row["load_lag"] or 0), *_name(row)))
    return rows


def _name(row: PartitionRow) -> tuple[str, str, int]:
    return row["datacenter"], row["topic"], row["partition"]


def _stops(ledger: Ledger) -> Iterator[tuple[SourcePartition, MirrorFinding]]:
    """Yield the last finding of each partition that stands at it: nothing was counted behind."""
    for item in sorted(ledger.mirror_findings.values(), key=lambda found: found.detected_ms):
        place = SourcePartition(item.datacenter, item.topic, item.partition)
        behind = max(item.first_offset, item.last_offset + 1)
        if item.kind in STOPPING and ledger.reach.position("offline", place) <= behind:
            yield place, item


def _row(ledger: Ledger, place: SourcePartition, stop: MirrorFinding | None) -> PartitionRow:
    live, offline = (ledger.reach.position(tier, place) for tier in ("live", "offline"))
    loaded = ledger.reach.position("warehouse", place)
    lag = max(0, live - offline) if live >= 0 and offline >= 0 else None
    reason = ""
    if stop is not None:
        state, reason = STOPPED, f"{stop.kind}: {stop.reason}"
    elif lag is None:
        state = UNCOUNTED
        reason = f"no counter counts it in the {'live' if live < 0 else 'offline'} cluster"
    else:
        state = BEHIND if lag else IN_STEP
    return {
        **place._asdict(),
        "state": state,
        "live": live if live >= 0 else None,
        "offline": offline if offline >= 0 else None,
        "warehouse": loaded if loaded >= 0 else None,
        "lag": lag,
        "load_lag": max(0, offline - loaded) if offline >= 0 and loaded >= 0 else None,
        "copied_until_ms": None if lag is None else _copied_until(ledger, place, offline, lag),
        "reason": reason,
    }


def _copied_until(ledger: Ledger, place: SourcePartition, offline: int, lag: int) -> int | None:
    found = ledger.reach.coverage.get(Counter("live", place))
    if found is None:
        return None
    known = _counted_below(found, offline)
    if not lag:
        known = max(known, ledger.reach.whole_at.get((place.datacenter, place.topic), 0))
    return known if known > 0 else None


def _counted_below(live: Coverage, offset: int) -> int:
    """Return when the live log was last counted up to no more than an offset."""
    folded = [live.folded_ms] if live.base <= offset else []
    return max((*folded, *(link.at_ms for link in live.chain if link.next <= offset)), default=0)
