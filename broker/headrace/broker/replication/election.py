"""Who leads a partition: pure choices over assignment, in-sync replicas and live brokers.

The rules are Apache Kafka's (kafka.controller.PartitionLeaderElectionAlgorithms). Each answers (leader,
new ISR), or None when nobody may lead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

Choice = tuple[int, tuple[int, ...]]


def elect_first(replicas: Sequence[int], live: Collection[int]) -> Choice | None:
    """A partition that never had a leader: the first live replica; all live replicas are in sync, for all
    are empty.
    """
    in_sync = tuple(r for r in replicas if r in live)
    return (in_sync[0], in_sync) if in_sync else None


def elect_offline(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int], *, unclean: bool = False
) -> Choice | None:
    """The leader is gone: the first live in-sync replica; with `unclean`, else the first live one, with
    loss.
    """
    leader = next((r for r in replicas if r in live and r in isr), None)
    if leader is not None:
        return leader, tuple(r for r in isr if r in live)
    if unclean:
        leader = next((r for r in replicas if r in live), None)
    return None if leader is None else (leader, (leader,))


def elect_preferred(replicas: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Choice | None:
    """Somebody else leads than should: the first replica, when it is live and in sync; the ISR stays."""
    return next(((r, tuple(isr)) for r in replicas[:1] if r in live and r in isr), None)


def elect_reassigned(
    leader: int, target: Sequence[int], isr: Collection[int], live: Collection[int]
) -> int | None:
    """The replicas are about to be `target`: who leads stays if it is one of them, else the first live one in sync leads."""
    if leader in target and leader in live:
        return leader
    return next((r for r in target if r in live and r in isr), None)


def elect_for_shutdown(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int], leaving: Collection[int]
) -> Choice | None:
    """The leader is about to stop: the first live in-sync replica that stays; those that leave leave the
    ISR too.
    """
    leader = next((r for r in replicas if r in live and r in isr and r not in leaving), None)
    return None if leader is None else (leader, tuple(r for r in isr if r not in leaving))


def without_leader(isr: Sequence[int], live: Collection[int]) -> tuple[int, ...]:
    """The ISR of a partition that nobody may lead: dead members go, but the last one stays, for it holds
    the data.
    """
    kept = list(isr)
    for replica in isr:
        if replica not in live and len(kept) > 1:
            kept.remove(replica)
    return tuple(kept)
