"""What keeps a copy one lineage of its source's log, decided of surveys and batches without a copier."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from mirror_kit import finding

from headrace.broker.log.segment import Place
from headrace.broker.wire.batches import Record, encode_batch, read_header
from headrace.mirror.copy.course import Course, Refusal, Step, Stop
from headrace.mirror.memory.findings import Kind
from headrace.mirror.memory.state import Skip, State
from headrace.mirror.questions import Located, Survey, Surveyed

ID = UUID(int=7)
STATE = State(target_id=UUID(int=1), source_id=ID, epochs=((3, 0), (4, 60)))
COURSE = Course(state=STATE, log_start_offset=0, log_end_offset=100)


def batch(base: int, count: int = 10, *, epoch: int = 4) -> memoryview:
    records = [Record(0, 1, None, b"%d" % n, []) for n in range(count)]
    return memoryview(bytearray(encode_batch(records, base_offset=base, leader_epoch=epoch)))


def step(course: Course, records: memoryview, taken_to: int | None = None) -> Step | Stop | Refusal:
    return course.of_batch(records, Place(0, read_header(records)), taken_to)


def asked(end: int = 100, epoch: int | None = 4) -> Survey:
    return Survey(topic_id=ID, leader_epoch=9, log_end_offset=end, epoch=epoch, tail=None)


def told(start: int, end: int, epoch: int = -1, epoch_end: int = -1) -> Surveyed:
    return Surveyed(log_start_offset=start, log_end_offset=end, epoch=epoch, epoch_end=epoch_end)


@pytest.mark.parametrize(
    ("found", "kind", "offsets"),
    [
        (told(0, 100, 4, 100), None, None),
        (told(0, 900, 4, 900), None, None),
        (told(101, 900), Kind.GAP, (100, 100)),
        (told(0, 90), Kind.TRUNCATION, (90, 99)),
        (told(0, 900, 3, 60), Kind.TRUNCATION, (60, 99)),
        (told(0, 50, 3, 55), Kind.TRUNCATION, (50, 99)),
    ],
)
def test_a_survey_lets_go_on_or_says_which_offsets_are_not_the_sources(
    found: Surveyed, kind: Kind | None, offsets: tuple[int, int] | None
) -> None:
    verdict = COURSE.of_survey(asked(), found)
    if kind is None:
        assert verdict is Step.GO_ON
    else:
        assert isinstance(verdict, Stop)
        assert (verdict.kind, verdict.offsets) == (kind, offsets)


def test_a_resumed_copy_waits_until_the_source_is_past_its_end_and_says_what_else_was_lost() -> None:
    resumed = replace(COURSE, state=replace(STATE, resumed_at=100, passed_from=80))
    assert resumed.of_survey(asked(), told(0, 99)) is Step.WAIT
    assert resumed.of_survey(asked(), told(0, 100)) is Step.GO_ON
    assert resumed.passed_anew(told(0, 90)) is None
    assert resumed.passed_anew(told(0, 70)) == (70, 79)
    assert resumed.passed_anew(told(0, 200, 3, 60)) == (60, 79)


def test_a_batch_follows_is_passed_or_ends_the_copy() -> None:
    assert step(COURSE, batch(100)) is Step.FOLLOW
    assert step(COURSE, batch(110), taken_to=110) is Step.FOLLOW
    assert step(COURSE, batch(80)) is Step.PASS
    assert step(COURSE, batch(95)) == Stop(
        kind=Kind.TRUNCATION,
        offsets=(95, 99),
        reason="the source's batch of offsets 95 to 104 does not begin where the copy ends",
    )
    gap = step(COURSE, batch(120), taken_to=110)
    assert isinstance(gap, Stop)
    assert (gap.kind, gap.offsets) == (Kind.GAP, (110, 119))
    assert step(replace(COURSE, is_compacted=True), batch(120), taken_to=110) is Step.FOLLOW
    repeated = step(COURSE, batch(100), taken_to=110)
    assert isinstance(repeated, Refusal)
    assert repeated.offsets == (110, -1)


def test_a_rotten_batch_that_was_copied_before_is_passed() -> None:
    rotten = batch(95)
    rotten[-1] ^= 1
    assert step(COURSE, rotten) is Step.PASS


def test_an_empty_copy_begins_anywhere_and_a_resumed_one_says_what_it_jumps_over() -> None:
    empty = Course(state=State(target_id=ID), log_start_offset=0, log_end_offset=0, source_start_offset=40)
    assert (empty.wanted_offset, empty.begins) == (40, True)
    header = read_header(batch(40))
    assert step(empty, batch(40)) is Step.JUMP
    assert empty.jumped(header) is None
    resumed = replace(COURSE, state=replace(STATE, resumed_at=100), source_start_offset=120)
    assert resumed.wanted_offset == 120
    assert step(resumed, batch(120)) is Step.JUMP
    assert resumed.jumped(read_header(batch(120))) == (100, 119)


def test_what_was_skipped_lies_between_the_copys_end_and_its_next_batch() -> None:
    skipped = Skip(log_end_offset=100, first_offset=100, last_offset=119)
    course = replace(COURSE, state=replace(STATE, skipped=skipped))
    assert course.next_offset == 120
    assert step(course, batch(110)) is Step.PASS
    assert step(course, batch(120)) is Step.FOLLOW


def test_another_topic_id_is_a_recreation_unless_one_of_them_is_not_known() -> None:
    found = Located(topic_id=UUID(int=8), leader=1, leader_epoch=0, is_compacted=False)
    stop = COURSE.recreation(found)
    assert stop is not None
    assert (stop.kind, stop.offsets) == (Kind.RECREATION, (0, 99))
    assert COURSE.recreation(replace(found, topic_id=ID)) is None
    assert COURSE.recreation(replace(found, topic_id=UUID(int=0))) is None


EMPTY = Course(state=replace(STATE, epochs=(), start=-1), log_start_offset=0, log_end_offset=0)


def begun(course: Course, *, begin: int, start: int = 0, end: int = 900) -> Course:
    """After a survey."""
    found = replace(told(start, end), begin=begin)
    return replace(course, state=course.begun(found), source_start_offset=start)


def test_a_new_copy_begins_where_it_is_to_start_and_that_is_decided_once() -> None:
    assert EMPTY.of_survey(asked(0, None), told(0, 900)) is Step.WAIT, "nobody said where"
    course = begun(EMPTY, begin=500)
    assert course.of_survey(asked(0, None), told(0, 900)) is Step.GO_ON
    assert (course.state.start, course.state.begins_at) == (None, 500)
    assert (course.next_offset, course.wanted_offset) == (500, 500)
    assert begun(course, begin=700).state == course.state
    later = begun(course, begin=-1, start=600)
    assert (later.state.begins_at, later.wanted_offset) == (500, 600)


def test_what_lies_before_the_start_is_no_loss_and_the_batch_that_holds_it_comes_whole() -> None:
    course = begun(EMPTY, begin=505)
    assert step(course, batch(490)) is Step.PASS
    held = batch(500)
    assert step(course, held) is Step.JUMP
    assert course.begins
    assert course.jumped(read_header(held)) is None
    assert course.jumped(read_header(batch(620))) is None, "nor what the source has deleted since"


def test_only_an_empty_copy_has_a_start() -> None:
    state = replace(STATE, start=-1)
    course = replace(COURSE, state=state)
    assert course.begun(replace(told(0, 900), begin=500)) is state
    assert course.of_survey(asked(), told(0, 900, 4, 900)) is Step.GO_ON
    assert COURSE.next_offset == 100


def test_a_source_that_lost_its_tail_before_anything_was_copied_is_copied_from_there() -> None:
    course = begun(begun(EMPTY, begin=500), begin=-1, end=450)
    assert (course.state.begins_at, course.next_offset) == (450, 450)


def test_a_topic_that_was_created_again_is_not_passed_over() -> None:
    state = replace(STATE, begins_at=50, stopped=finding(Kind.RECREATION, 90, 99))
    going_on, _ = replace(COURSE, state=state).resumed()
    assert going_on.begins_at is None


@pytest.mark.parametrize(
    ("kind", "lost", "epochs"),
    [
        (Kind.GAP, None, STATE.epochs),
        (Kind.TRUNCATION, (90, 99), STATE.epochs),
        (Kind.RECREATION, (90, 99), ()),
    ],
)
def test_a_resume_goes_on_from_the_end_and_says_what_that_loses(
    kind: Kind, lost: tuple[int, int] | None, epochs: tuple[tuple[int, int], ...]
) -> None:
    going_on, found = replace(COURSE, state=replace(STATE, stopped=finding(kind, 90, 99))).resumed()
    assert found == lost
    assert (going_on.stopped, going_on.resumed_at, going_on.epochs) == (None, 100, epochs)
    assert going_on.passed_from == (100 if lost is None else 90)
