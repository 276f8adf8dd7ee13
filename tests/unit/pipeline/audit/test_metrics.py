"""What the auditor's metrics make of the ledger."""

from __future__ import annotations

from pathlib import Path

from headrace.audit.clocks import Clocks, Skew, Skews
from headrace.audit.metrics import AuditMetrics, skews_by_hop


def test_skews_are_told_by_hop_and_never_by_host() -> None:
    found = {
        Clocks("dc-east", "producer_to_live", "web-1", "b-1"): Skew(count=9, largest_ms=70, certain=4),
        Clocks("dc-east", "producer_to_live", "web-2", "b-1"): Skew(count=2, largest_ms=90, certain=1),
        # Maybe no clock is wrong.
        Clocks("dc-east", "live_to_offline", "b-1", "b-2"): Skew(count=2, largest_ms=3, certain=0),
    }
    assert skews_by_hop(Skews(found)) == {("dc-east", "producer_to_live"): (5, 90)}


def test_the_disk_of_the_state_is_told_while_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(b"12345")
    registry = AuditMetrics(tmp_path).registry
    assert registry.get_sample_value("headrace_audit_state_bytes") == 5
    assert (registry.get_sample_value("headrace_audit_state_free_bytes") or 0) > 0
    gone = AuditMetrics(tmp_path / "gone").registry
    assert gone.get_sample_value("headrace_audit_state_bytes") is None
