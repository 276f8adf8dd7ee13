"""Which absences compaction explains, so that they are neither losses nor duplicates.

Owns one rule. A compacted log shows what was removed as offsets without a record. Where a topic's `cleanup.policy` compacts,
no more events than there are such offsets may be missing without being lost, or be missing in the tier before without being
doubled; with one more, something else took them, and all are faults. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from headrace.audit.latency import Hop
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.parcels import COUNTED_TIERS

Fault = tuple[Hop, Literal["loss", "duplicate"]]
ANY_NUMBER: Final = 1 << 62


def is_compacted(ledger: Ledger, datacenter: str, topic: str) -> bool:
    return ledger.is_compacted(datacenter, topic)


def explained(ledger: Ledger, datacenter: str, topic: str, faults: Mapping[Fault, int]) -> frozenset[Fault]:
    """Return the faults of a topic, given by how many events each is of, that compaction may be all of."""
    if not is_compacted(ledger, datacenter, topic):
        return frozenset()
    is_live, is_offline = ((tier, datacenter, topic) in ledger.compacted for tier in COUNTED_TIERS)
    live, offline = (ledger.reach.removed_offsets(tier, datacenter, topic) for tier in COUNTED_TIERS)
    allowed: dict[Fault, int] = {
        ("producer_to_live", "loss"): live if is_live else 0,
        # What was removed from the live log before it was copied is missing in the copy, whose own policy may be another.
        ("live_to_offline", "loss"): offline,
        ("live_to_offline", "duplicate"): live if is_live else 0,
        # The load reads the log on its own, later or earlier than the counter did.
        ("offline_to_warehouse", "loss"): ANY_NUMBER if is_offline else 0,
        ("offline_to_warehouse", "duplicate"): offline if is_offline else 0,
    }
    return frozenset(fault for fault, count in faults.items() if 0 < count <= allowed.get(fault, 0))
