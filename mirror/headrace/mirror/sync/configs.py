"""Which configurations a copy has as its source's topic has them, and what to change for that. Pure.

The source wins: what somebody set at the copy is overwritten. Everything else is the copy's own: how long and how safely this
cluster keeps it (retention, segments, `min.insync.replicas`, elections), replicas' throttles, the mark of a copy, and whatever
another engine may know.
"""

from __future__ import annotations

from collections.abc import Mapping

COPIED_CONFIGS = ("cleanup.policy", "max.message.bytes")
"""What a copy has from its first moment."""
SYNCED_CONFIGS = (
    *COPIED_CONFIGS,
    # What a cleaner leaves of a compacted topic, and for how long.
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "min.compaction.lag.ms",
    # What clients may write, and how it is kept, once the copy is promoted: to the mirror's own appends it means nothing.
    "compression.type",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
)


def copied(there: Mapping[str, str]) -> dict[str, str]:
    """What a copy is made with."""
    return {key: there[key] for key in COPIED_CONFIGS if key in there}


def changes(there: Mapping[str, str], here: Mapping[str, str]) -> dict[str, str]:
    """What to set at a copy; both are configurations in effect, defaults included. What a source does not tell stays."""
    return {key: there[key] for key in SYNCED_CONFIGS if key in there and there[key] != here.get(key)}


def told(topic: str, found: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What to say of a copy's changes."""
    return f"{topic}: " + ", ".join(
        f"{key} {here.get(key, 'unknown')} -> {value}" for key, value in found.items()
    )
