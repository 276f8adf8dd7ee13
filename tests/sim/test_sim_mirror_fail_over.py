"""The mirror of three brokers while the copy's leader moves between them; with a safety rule off, some seed notices.

A seed is replayed by its number: `FailOverWorld(seed).run(STEPS)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from long_runs import first_of
from mirror_fail_over import Broker, FailOverWorld, Replica
from mirror_mutations import epochs_are_noted_after_the_append, states_are_read_without_a_claim_before

from headrace.mirror.copy.notes import Notes
from headrace.mirror.memory.findings import Kind
from headrace.mirror.memory.journal import Journal
from headrace.mirror.memory.state import State
from headrace.mirror.memory.states import States

STEPS = 250
SEEDS = 400


@pytest.mark.parametrize("block", first_of(1, range(5)))
def test_copies_survive_fail_overs_without_a_finding_that_is_false_lost_or_doubled(block: int) -> None:
    worlds = [FailOverWorld(seed) for seed in range(block, SEEDS, 5)]
    for world in worlds:
        world.run(STEPS)
    met = {found.kind for world in worlds for found in world.findings}
    assert met >= {Kind.TRUNCATION, Kind.RECREATION, Kind.GAP, Kind.LOSS}
    assert sum(world.fail_overs for world in worlds) > 300
    assert sum(world.deposed_writes for world in worlds) > 100
    assert sum(world.brokers[0].log_end_offset for world in worlds) > 5_000


def _nothing_waits_for_the_journal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Notes, "is_writing", property(lambda self: False))


def _the_last_state_counts_whoever_wrote_it(patch: pytest.MonkeyPatch) -> None:
    def take(self: States, copy: Any, key: Any, timestamp_ms: int, found: State) -> None:
        copy.states = {key: (timestamp_ms, found)}

    patch.setattr(States, "_take_state", take)


def _a_deposed_leader_believes_what_it_wrote(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "_is_superseded", lambda self, lead, term: False)


def _nothing_waits_until_the_copy_is_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Broker, "is_committed", property(lambda self: True))


def _a_successor_tells_nothing_of_its_predecessors(patch: pytest.MonkeyPatch) -> None:
    write = Journal.write

    def silent(self: Journal, lead: Any, state: State, findings: Any, written: Callable[[], None]) -> None:
        is_copiers = getattr(written, "__name__", "") == "_ended"
        write(self, lead, state, findings if is_copiers else (), written)

    patch.setattr(Journal, "write", silent)


def _arrivals_are_written_before_they_are_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replica, "high_watermark", property(lambda self: 2**60))


@pytest.mark.parametrize(
    ("break_rule", "first_seed"),
    [
        (_nothing_waits_for_the_journal, 0),
        (epochs_are_noted_after_the_append, 31),
        (_the_last_state_counts_whoever_wrote_it, 177),
        (states_are_read_without_a_claim_before, 5),
        (_a_deposed_leader_believes_what_it_wrote, 50),
        (_nothing_waits_until_the_copy_is_committed, 12),
        (_a_successor_tells_nothing_of_its_predecessors, 1),
        (_arrivals_are_written_before_they_are_committed, 0),
    ],
)
@pytest.mark.acceptance
def test_without_a_safety_rule_some_seed_fails(
    break_rule: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    assert any(_fails((first_seed + number) % SEEDS) for number in range(SEEDS))


def _fails(seed: int) -> bool:
    try:
        FailOverWorld(seed).run(STEPS)
    except AssertionError:
        return True
    return False
