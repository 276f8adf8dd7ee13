"""The copier under a seeded source, network and target; with a safety rule off, some seed notices."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from long_runs import first_of
from mirror_mutations import epochs_are_noted_after_the_append
from mirror_world import MirrorWorld

from headrace.broker.log import validation
from headrace.mirror.copy import copier as copier_module
from headrace.mirror.copy import course as course_module
from headrace.mirror.copy import survey
from headrace.mirror.copy.copier import Copier
from headrace.mirror.copy.course import Course, Stop
from headrace.mirror.copy.notes import Notes
from headrace.mirror.memory.findings import CopyFinding, Kind
from headrace.mirror.memory.state import SkipOrder, State

SEEDS = 240
TELLING_SEEDS = (228, 63, 49, 26)
"""Few others show that certain rules are missing."""
STEPS = 250
LATE_SEEDS = 80
TRUNCATED_AGAIN_SEEDS = (1037, 2190)
"""The source loses more after a resume, before anything was appended, than it had lost before."""


@pytest.mark.parametrize("block", first_of(1, range(4)))
def test_the_copy_is_the_sources_or_says_why_not(block: int) -> None:
    for seed in range(block, SEEDS, 4):
        MirrorWorld(seed).run(STEPS)


@pytest.mark.parametrize("block", first_of(1, range(4)))
def test_a_copy_that_begins_at_the_end_has_all_that_comes_from_there_on(block: int) -> None:
    worlds = [MirrorWorld(seed, begins_late=True) for seed in range(block, LATE_SEEDS, 4)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.began_at is not None and bool(world.copied) for world in worlds) > len(worlds) // 2


@pytest.mark.parametrize("seed", TRUNCATED_AGAIN_SEEDS)
def test_what_a_source_loses_while_a_resumed_copy_waits_is_told(seed: int) -> None:
    MirrorWorld(seed).run(STEPS)


@pytest.mark.acceptance
def test_the_seeds_meet_every_kind_of_finding() -> None:
    worlds = [MirrorWorld(seed) for seed in range(40)]
    for world in worlds:
        world.run(STEPS)
    found = {finding.kind for world in worlds for finding in world.findings}
    # No source here has batches of other formats, and nobody compares a copy with it.
    assert found == set(Kind) - {Kind.FORMAT, Kind.DIFFERENCE}
    assert sum(len(world.copied) for world in worlds) > 1_000
    assert sum(len(world.skipped) for world in worlds) > 5
    assert any(arrival.is_estimated for world in worlds for arrival in world.arrivals)


def _recreation_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Course, "recreation", lambda self, found: None)


def _divergence_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(survey, "is_diverged", lambda request, found: False)


def _another_tail_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(survey, "is_other", lambda request, found: False)


def _a_shorter_source_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(survey, "is_cut", lambda request, found: False)


def _a_deleted_start_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Course, "is_gone", lambda self, found: False)


def _gaps_are_legal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Course, "follows", lambda self, header, next_offset: header.base_offset >= next_offset)


def _old_answers_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copier, "_is_of_now", lambda self, request, phase: self.located_at is not None)


def _checksums_are_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(validation, "check_integrity", lambda records, position, header: None)


def _epochs_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "with_epoch", lambda self, epoch, start_offset: self)


def _stops_are_not_remembered(patch: pytest.MonkeyPatch) -> None:
    def stop(self: Any, found: Stop, now_ms: int) -> None:
        self._notes.write(self.state, self._finding(found.kind, found.offsets, found.reason, now_ms))
        self._pause.begin(now_ms)
        self.phase = copier_module.Phase.COPYING

    patch.setattr(Copier, "_stop", stop)


def _a_resume_jumps_in_silence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Course, "jumped", lambda self, header: None)


def _a_skip_is_silent(patch: pytest.MonkeyPatch) -> None:
    skip = Copier.skip

    def silent(self: Any, *order: Any) -> None:
        write = self._notes.write
        with patch.context() as inner:
            inner.setattr(self._notes, "write", lambda state, *findings: write(state))
            skip(self, *order)

    patch.setattr(Copier, "skip", silent)


def _any_offsets_are_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SkipOrder, "is_of", lambda self, rotten: True)


def _a_rotten_header_is_believed(patch: pytest.MonkeyPatch) -> None:
    def believed(records: Any, rotten: Any, high_watermark: int) -> tuple[int, int]:
        return rotten.header.base_offset, rotten.header.last_offset

    for module in (copier_module, course_module):
        patch.setattr(module, "rotten_offsets", believed)


def _a_stop_is_not_reported(patch: pytest.MonkeyPatch) -> None:
    write = Notes.write

    def silent(self: Notes, state: State, *findings: CopyFinding) -> None:
        write(self, state, *(found for found in findings if found != state.stopped))

    patch.setattr(Notes, "write", silent)


def _crashes_leave_arrivals_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mirror_world.missing", lambda *_: None)


@pytest.mark.parametrize(
    "break_rule",
    [
        _recreation_is_not_seen,
        _divergence_is_not_seen,
        _another_tail_is_not_seen,
        _a_shorter_source_is_not_seen,
        _a_deleted_start_is_not_seen,
        _gaps_are_legal,
        _old_answers_count,
        _checksums_are_believed,
        _epochs_are_not_noted,
        epochs_are_noted_after_the_append,
        _stops_are_not_remembered,
        _a_resume_jumps_in_silence,
        _a_skip_is_silent,
        _any_offsets_are_skipped,
        _a_rotten_header_is_believed,
        _a_stop_is_not_reported,
        _crashes_leave_arrivals_out,
    ],
)
@pytest.mark.acceptance
def test_without_a_safety_rule_some_seed_fails(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    assert any(_fails(seed) for seed in (*TELLING_SEEDS, *range(SEEDS)))


def _where_it_begins_is_decided_again_and_again(patch: pytest.MonkeyPatch) -> None:
    begun = Course.begun
    patch.setattr(Course, "begun", lambda self, found: replace(begun(self, found), start=self.state.start))


def _where_it_begins_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Course, "begun", lambda self, found: replace(self.state, start=None))


@pytest.mark.parametrize(
    "break_rule", [_where_it_begins_is_decided_again_and_again, _where_it_begins_is_not_kept]
)
def test_without_a_rule_of_the_beginning_some_late_seed_fails(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    assert any(_fails(seed, begins_late=True) for seed in range(LATE_SEEDS))


def _fails(seed: int, *, begins_late: bool = False) -> bool:
    try:
        MirrorWorld(seed, begins_late=begins_late).run(STEPS)
    except AssertionError:
        return True
    return False
