"""What the tests of the mirror's commands share."""

from __future__ import annotations

from headrace.mirror.findings import CopyFinding, Kind


def finding(kind: Kind, first: int, last: int) -> CopyFinding:
    """One of partition 0 of `t` in dc-east."""
    return CopyFinding(
        kind=kind,
        datacenter="dc-east",
        topic="t",
        partition=0,
        first_offset=first,
        last_offset=last,
        detected_ms=5,
        reason="so it is",
    )
