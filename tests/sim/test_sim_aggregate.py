"""Several members bring a source's partitions into a target; with a safety rule off, some seed notices."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aggregate_world import AggregateWorld
from long_runs import first_of

from headrace.broker.wire.batches import BatchHeader
from headrace.mirror.aggregate import stream as stream_module
from headrace.mirror.aggregate.committed import Committed
from headrace.mirror.aggregate.lease import Lease
from headrace.mirror.aggregate.ownership import Ownership
from headrace.mirror.aggregate.position import SEQUENCE_COUNT, Position
from headrace.mirror.aggregate.search import Search
from headrace.mirror.aggregate.stream import Stream

SEEDS = 1200
STEPS = 250
BLOCKS = 12
MISSED_WITHIN = 120


@pytest.mark.parametrize("block", first_of(1, range(BLOCKS)))
def test_each_committed_message_comes_once_and_in_order(block: int) -> None:
    worlds = [AggregateWorld(seed) for seed in range(block, SEEDS, BLOCKS)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.handovers for world in worlds) > 5 * len(worlds)
    assert sum(world.repeated for world in worlds) > len(worlds) // 10
    assert sum(world.refusals for world in worlds) > 5
    assert sum(world.forgotten for world in worlds) > len(worlds) // 2


def _sequences_are_what_the_target_says(patch: pytest.MonkeyPatch) -> None:
    located = Stream.located

    def adopted(self: Stream, survey: Any, found: Any, next_sequence: int | None, **told: Any) -> None:
        if next_sequence is not None:
            self.position = replace(self.position, sequence=next_sequence)
        located(self, survey, found, next_sequence, **told)

    patch.setattr(Stream, "located", adopted)


def _what_the_target_has_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Position, "ahead", lambda self, next_sequence: 0)


def _what_the_target_has_counts_as_committed(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether it is."""
    patch.setattr(AggregateWorld, "looks_at_what_is_committed", False)


def _sent_is_brought(patch: pytest.MonkeyPatch) -> None:
    refused = Stream.refused

    def gone_on(self: Stream, reason: str) -> None:
        self.position = self._read
        refused(self, reason)

    patch.setattr(Stream, "refused", gone_on)


def _read_is_brought(patch: pytest.MonkeyPatch) -> None:
    fetched = Stream.fetched

    def brought(self: Stream, *answer: Any) -> None:
        fetched(self, *answer)
        self.position = self._read

    patch.setattr(Stream, "fetched", brought)


def _aborted_messages_are_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committed, "holds", lambda self, records, place: not place.header.is_control)


def _markers_are_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Position, "passed", _passed_with_markers)


def _passed_with_markers(self: Position, header: BatchHeader, count: int) -> Position:
    sequence = (self.sequence + max(count, 1)) % SEQUENCE_COUNT
    return replace(self, offset=header.next_offset, sequence=sequence, leader_epoch=header.leader_epoch)


def _what_is_forgotten_is_not_searched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Search, "take", lambda self, headers: None)


def _the_search_begins_where_others_are(patch: pytest.MonkeyPatch) -> None:
    """At the target's end of when it was located, whatever came of the producer before that was asked."""
    has_nothing_below = Stream._has_nothing_below
    patch.setattr(Stream, "_has_nothing_below", lambda self, offset: has_nothing_below(self, offset + 2))


def _sequences_do_not_wrap(patch: pytest.MonkeyPatch) -> None:
    def ahead(self: Position, next_sequence: int) -> int:
        return next_sequence - self.sequence

    patch.setattr(Position, "ahead", ahead)


def _the_lease_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "holds", lambda self, now_ms: True)


def _a_lease_begins_with_the_answer(patch: pytest.MonkeyPatch) -> None:
    renewed = Lease.renewed
    patch.setattr(Lease, "renewed", lambda self, asked_ms: renewed(self, asked_ms + 600))


def _an_earlier_sessions_claim_counts(patch: pytest.MonkeyPatch) -> None:
    claimed = Ownership.claimed

    def accepted(self: Ownership, claim: Any) -> bool:
        return claimed(self, replace(claim, session=self._session))

    patch.setattr(Ownership, "claimed", accepted)


def _a_lost_session_keeps_what_it_owned(patch: pytest.MonkeyPatch) -> None:
    session_lost = Ownership.session_lost

    def kept(self: Ownership) -> None:
        owned = set(self.owned)
        session_lost(self)
        self.owned |= owned

    patch.setattr(Ownership, "session_lost", kept)


def _a_producers_epoch_is_left(patch: pytest.MonkeyPatch) -> None:
    """Batches go as the source's producers wrote them."""
    patch.setattr(
        stream_module,
        "rewritten",
        lambda records, place, position: bytearray(
            records[place.position : place.position + place.header.size]
        ),
    )


RULES = [
    _sequences_are_what_the_target_says,
    _what_the_target_has_is_not_asked,
    _what_the_target_has_counts_as_committed,
    _sent_is_brought,
    _read_is_brought,
    _aborted_messages_are_taken,
    _markers_are_counted,
    _what_is_forgotten_is_not_searched,
    _the_search_begins_where_others_are,
    _sequences_do_not_wrap,
    _the_lease_is_not_looked_at,
    _a_lease_begins_with_the_answer,
    _an_earlier_sessions_claim_counts,
    _a_lost_session_keeps_what_it_owned,
    _a_producers_epoch_is_left,
]


def first_complaint(**ways: bool) -> str:
    for seed in range(MISSED_WITHIN):
        try:
            AggregateWorld(seed, **ways).run(STEPS)
        except AssertionError as error:
            return str(error)
    pytest.fail(f"{MISSED_WITHIN} seeds do not notice")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.acceptance
def test_each_rule_is_missed_when_it_is_off(
    rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(monkeypatch)
    first_complaint()


def test_positions_are_written_by_compare_and_set() -> None:
    assert "goes back" in first_complaint(checks_versions=False)
