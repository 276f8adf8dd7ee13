"""The topics in which the mirrors of a cluster's brokers keep what must outlive them, and what they are made with.

All brokers share them, with as many replicas as brokers allow. What is written of a copy goes to the same partition whoever
leads it.
"""

from __future__ import annotations

from collections.abc import Mapping

STATES, FINDINGS, ARRIVALS, SOURCES = (
    "headrace.mirror",
    "headrace.findings",
    "headrace.arrivals",
    "headrace.sources",
)
OWN_TOPICS: Mapping[str, Mapping[str, str]] = {
    STATES: {"cleanup.policy": "compact"},
    FINDINGS: {"retention.ms": "-1"},
    ARRIVALS: {},
    SOURCES: {"retention.ms": "3600000", "segment.ms": "600000"},
}
WRITTEN_PARTITION = 0
"""Of each; others are of earlier versions, whose brokers had one each, and are only read."""
