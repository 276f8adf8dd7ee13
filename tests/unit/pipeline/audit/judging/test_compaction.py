"""Which faults compaction explains."""

from __future__ import annotations

import pytest

from headrace.audit.judging.compaction import Fault, explained
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.records import Counted, CounterTier, MirrorFinding
from headrace.broker.wire.partitions import TopicPartition

ALL: dict[Fault, int] = {
    ("producer_to_live", "loss"): 3,
    ("producer_to_live", "duplicate"): 3,
    ("live_to_offline", "loss"): 3,
    ("live_to_offline", "duplicate"): 3,
    ("offline_to_warehouse", "loss"): 3,
    ("offline_to_warehouse", "duplicate"): 3,
}


def counted(tier: CounterTier, removed: int, *, is_compacted: bool) -> Counted:
    topic = "state" if tier == "live" else "dc-east.state"
    return Counted(
        tier=tier,
        datacenter="dc-east" if tier == "live" else "offline",
        partition=TopicPartition(topic, 0),
        first=0,
        next=10,
        tallies=(),
        at_ms=0,
        removed=removed,
        is_compacted=is_compacted,
    )


@pytest.mark.parametrize(
    ("live", "offline", "hops"),
    [
        (False, False, []),
        (
            True,
            False,
            [
                ("producer_to_live", "loss"),
                ("live_to_offline", "loss"),
                ("live_to_offline", "duplicate"),
            ],
        ),
        (
            False,
            True,
            [
                ("live_to_offline", "loss"),
                ("offline_to_warehouse", "loss"),
                ("offline_to_warehouse", "duplicate"),
            ],
        ),
    ],
)
def test_a_policy_that_compacts_explains_the_hops_at_its_log(
    live: bool, offline: bool, hops: list[Fault]
) -> None:
    ledger = Ledger()
    ledger.on_count(counted("live", 3, is_compacted=live))
    ledger.on_count(counted("offline", 3, is_compacted=offline))
    assert explained(ledger, "dc-east", "state", ALL) == set(hops)
    assert explained(ledger, "dc-east", "other", ALL) == set()


def test_offsets_that_the_mirror_passed_over_excuse_nothing() -> None:
    ledger = Ledger()
    ledger.on_count(counted("offline", 5, is_compacted=True))
    ledger.on_mirror_finding(
        MirrorFinding(
            id="1",
            kind="loss",
            datacenter="dc-east",
            topic="state",
            partition=0,
            first_offset=4,
            last_offset=6,
            detected_ms=0,
            reason="skipped",
        )
    )
    assert explained(ledger, "dc-east", "state", {("live_to_offline", "loss"): 2})
    assert not explained(ledger, "dc-east", "state", {("live_to_offline", "loss"): 3})


def test_more_than_was_removed_is_not_explained() -> None:
    ledger = Ledger()
    ledger.on_count(counted("live", 2, is_compacted=True))
    assert explained(ledger, "dc-east", "state", {("producer_to_live", "loss"): 2})
    assert not explained(ledger, "dc-east", "state", {("producer_to_live", "loss"): 3})
    assert not explained(ledger, "dc-east", "state", {("producer_to_live", "loss"): 0})
