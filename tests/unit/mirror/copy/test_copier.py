"""The copier's decisions as scripts: what it asks, what it appends, when it stops and how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headrace.broker.errors import CorruptMessageError, ErrorCode
from headrace.broker.log.results import AppendResult
from headrace.broker.wire.batches import (
    BatchHeader,
    Record,
    check_crc,
    encode_batch,
    iter_batches,
    read_header,
)
from headrace.mirror.copy.copier import TOO_FEW_IN_SYNC, VANISHED_AFTER_MS, Copier, Phase
from headrace.mirror.copy.progress import LAG_KNOWN_MS
from headrace.mirror.memory.findings import CopyFinding, Kind
from headrace.mirror.memory.state import SkipOrder, State, decode, stop_id
from headrace.mirror.questions import Fetch, Located, Survey, Surveyed

ID, OTHER_ID = UUID(int=1), UUID(int=2)
STATE = State(target_id=UUID(int=9))


class Target:
    """A log that keeps the (base, last) offsets it was given."""

    def __init__(self, start: int = 0, end: int = 0) -> None:
        self.log_start_offset, self.log_end_offset = start, end
        self.batches: list[BatchHeader] = []
        self.is_committed = self.has_enough_in_sync = True

    def append(self, records: memoryview) -> AppendResult:
        placed = list(iter_batches(records))
        if not all(check_crc(records, position, header) for position, header in placed):
            raise CorruptMessageError("rot")
        self.batches += [header for _, header in placed]
        self.log_end_offset = self.batches[-1].next_offset
        return AppendResult(placed[0][1].base_offset, self.log_end_offset - 1, -1, 0, len(placed))

    def start_at(self, offset: int) -> None:
        self.log_start_offset = self.log_end_offset = offset

    def last_batch(self) -> BatchHeader | None:
        return self.batches[-1] if self.batches else None


class Journal:
    """Has written what it is given at once, or, while it `holds` what it is given, at `commit`."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.findings: list[CopyFinding] = []
        self.arrivals: list[tuple[int, int, int]] = []
        self.holds = False
        self.held: list[tuple[State, Sequence[CopyFinding], Callable[[], None]]] = []

    def write(self, state: State, findings: Sequence[CopyFinding], written: Callable[[], None]) -> None:
        self.held.append((state, findings, written))
        if not self.holds:
            self.commit()

    def commit(self) -> None:
        """Everything that was given is written."""
        held, self.held = self.held, []
        for state, findings, written in held:
            self.states.append(decode(state.encode()))
            self.findings += findings
            written()

    def arrived(self, first_offset: int, last_offset: int, now_ms: int) -> None:
        self.arrivals.append((first_offset, last_offset, now_ms))


class Script:
    """A copier with its surroundings; time stands at 1000 unless a step says otherwise."""

    def __init__(
        self, *, start: int = 0, end: int = 0, state: State = STATE, is_compacted: bool = False
    ) -> None:
        self.target, self.journal = Target(start, end), Journal()
        self.is_compacted = is_compacted
        self.copier = Copier(
            "dc-east",
            "events",
            0,
            target=self.target,
            journal=self.journal,
            state=state,
            backoff_ms=(100, 400),
        )

    def locate(self, *, epoch: int = 0, topic_id: UUID = ID, now_ms: int = 1000) -> None:
        found = Located(topic_id=topic_id, leader=1, leader_epoch=epoch, is_compacted=self.is_compacted)
        self.copier.located(found, now_ms)

    def survey(self, start: int, end: int, now_ms: int = 1000, **answer: Any) -> None:
        want = self.copier.wants(now_ms)
        assert isinstance(want, Survey)
        found = Surveyed(log_start_offset=start, log_end_offset=end, **answer)
        self.copier.surveyed(want, found, now_ms)

    def fetch(self, *batches: bytes, high_watermark: int = 100, now_ms: int = 1000) -> Fetch:
        want = self.copier.wants(now_ms)
        assert isinstance(want, Fetch)
        self.answer(want, *batches, high_watermark=high_watermark, now_ms=now_ms)
        return want

    def answer(self, want: Fetch, *batches: bytes, high_watermark: int = 100, now_ms: int = 1000) -> None:
        records = memoryview(bytearray(b"".join(batches)))
        self.copier.fetched(want, records, high_watermark=high_watermark, log_start_offset=0, now_ms=now_ms)

    def copying(self, *batches: bytes) -> None:
        self.locate()
        self.survey(0, 100)
        self.fetch(*batches)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return [(header.base_offset, header.last_offset) for header in self.target.batches]

    @property
    def kinds(self) -> list[Kind]:
        return [finding.kind for finding in self.journal.findings]


def batch(first: int, last: int, epoch: int = 0) -> bytes:
    records = [Record(0, 500, None, b"%d" % offset, []) for offset in range(first, last + 1)]
    return bytes(encode_batch(records, base_offset=first, leader_epoch=epoch))


def rotten(first: int, last: int) -> bytes:
    data = bytearray(batch(first, last))
    data[-1] ^= 1
    return bytes(data)


def test_batches_are_appended_in_order_and_noted() -> None:
    script = Script()
    script.copying(batch(0, 2), batch(3, 3))
    assert script.fetch(batch(4, 9), now_ms=1500).offset == 4
    assert script.offsets == [(0, 2), (3, 3), (4, 9)]
    assert script.journal.arrivals == [(0, 3, 1000), (4, 9, 1500)]
    assert script.copier.lag_messages(1500) == 90


def test_a_new_leader_epoch_of_the_source_is_written_before_its_first_batch_is_appended() -> None:
    script = Script()
    script.copying(batch(0, 4, epoch=1))
    script.journal.holds = True
    want = script.fetch(batch(5, 9, epoch=1), batch(10, 14, epoch=2), batch(15, 19, epoch=2))
    assert want.offset == 5
    assert script.offsets == [(0, 4), (5, 9)], "what came before it is appended"
    assert [state.epochs for state, *_ in script.journal.held] == [((1, 0), (2, 10))]
    assert script.copier.wants(1000) is None, "nothing is asked while it is being written"
    script.answer(want, batch(10, 14, epoch=2))
    assert script.offsets == [(0, 4), (5, 9)], "and nothing is appended"
    script.journal.commit()
    assert script.fetch(batch(10, 14, epoch=2)).offset == 10
    assert script.offsets == [(0, 4), (5, 9), (10, 14)]


def test_an_empty_copy_begins_once_the_sources_epoch_is_written() -> None:
    script = Script()
    script.journal.holds = True
    script.locate()
    script.journal.commit()
    script.survey(50, 100)
    script.fetch(batch(50, 59, epoch=4))
    assert (script.target.log_start_offset, script.offsets) == (0, [])
    script.journal.commit()
    script.fetch(batch(50, 59, epoch=4))
    assert (script.target.log_start_offset, script.offsets) == (50, [(50, 59)])


def test_nothing_is_written_of_what_is_not_committed_yet() -> None:
    script = Script()
    script.copying(batch(0, 4))
    script.target.is_committed = False
    script.fetch(batch(5, 9))
    assert script.offsets == [(0, 4), (5, 9)], "copying goes on ahead of its followers"
    script.fetch(batch(12, 14))
    assert (script.kinds, script.copier.phase) == ([], Phase.SURVEYING)
    assert script.copier.wants(2000) is None
    script.target.is_committed = True
    script.survey(0, 100, now_ms=2000)
    script.fetch(batch(12, 14), now_ms=2000)
    assert (script.kinds, script.copier.phase) == ([Kind.GAP], Phase.STOPPED)


@pytest.mark.parametrize("bad", ["rotten", "recreated", "resumed"])
def test_an_order_or_a_finding_waits_until_the_copy_is_committed(bad: str) -> None:
    gap = _stopped_by_a_gap().state.stopped
    assert gap is not None
    script = Script(state=replace(STATE, stopped=gap)) if bad == "resumed" else Script()
    for is_committed in (False, True):
        if bad == "resumed":
            script.target.is_committed = is_committed
            script.copier.resume(stop_id(gap), 1000)
            assert (script.copier.state.stopped is None) is is_committed
            continue
        if not is_committed:
            script.copying(batch(0, 4))
        script.target.is_committed = is_committed
        if bad == "rotten":
            if is_committed:
                script.fetch(rotten(5, 9), now_ms=9000)
            else:
                script.fetch(rotten(5, 9))
        else:
            script.locate(topic_id=OTHER_ID)
        assert bool(script.kinds) is is_committed


def _stopped_by_a_gap() -> Copier:
    script = Script()
    script.copying(batch(0, 4))
    script.fetch(batch(12, 14))
    return script.copier


def test_a_copy_with_too_few_replicas_in_sync_asks_for_nothing() -> None:
    script = Script()
    script.copying(batch(0, 4))
    script.target.has_enough_in_sync = False
    assert script.copier.wants(1000) is None
    assert script.copier.obstacle == TOO_FEW_IN_SYNC
    script.target.has_enough_in_sync = True
    assert script.fetch(batch(5, 9)).offset == 5


def test_a_stop_is_written_with_its_finding() -> None:
    script = Script()
    script.copying(batch(0, 4))
    script.journal.holds = True
    script.fetch(batch(12, 14))
    ((state, findings, _),) = script.journal.held
    assert (state.stopped, [f.kind for f in findings]) == (findings[0], [Kind.GAP])


def test_a_cut_last_batch_is_asked_for_again() -> None:
    script = Script()
    script.copying(batch(0, 2), batch(3, 5)[:-1])
    assert script.fetch(batch(3, 5)).offset == 3
    assert script.offsets == [(0, 2), (3, 5)]


def test_a_batch_that_claims_to_be_longer_than_what_comes_is_rot() -> None:
    longer = bytearray(batch(3, 5))
    longer[9] ^= 1
    script = Script()
    script.copying(batch(0, 2), bytes(longer), batch(6, 8))
    assert (script.offsets, script.kinds) == ([(0, 2)], [])
    script.fetch(bytes(longer), batch(6, 8))
    assert (told(script), script.copier.condition) == ([(Kind.ROT, 3, -1)], "rotten")
    script.fetch(batch(3, 5), now_ms=1100)
    assert (script.offsets, script.copier.condition) == ([(0, 2), (3, 5)], "copying")


def test_an_empty_copy_begins_with_the_batch_that_holds_the_sources_start() -> None:
    script = Script()
    script.locate()
    script.survey(7, 100)
    assert script.fetch(batch(5, 8)).offset == 7
    assert (script.target.log_start_offset, script.offsets, script.kinds) == (5, [(5, 8)], [])


@pytest.mark.parametrize(("is_compacted", "before"), [(False, ()), (True, (batch(0, 2),))])
def test_a_batch_beyond_the_end_that_the_source_tells_is_not_believed(
    before: tuple[bytes, ...], *, is_compacted: bool
) -> None:
    """Where a copy may go on anywhere, one such batch would put its end beyond the source's for ever."""
    script = Script(is_compacted=is_compacted)
    script.copying(*before)
    copied = script.offsets
    script.fetch(batch(1 << 40, 1 << 40))
    assert (script.offsets, script.copier.condition) == (copied, "rotten")
    assert script.copier.state.rotten is not None
    assert (
        script.copier.state.rotten.reason == f"offsets {1 << 40} to {1 << 40} came of a log that ends at 100"
    )
    script.fetch(batch(3, 5), now_ms=1100)
    assert (script.offsets, script.copier.condition) == ([*copied, (3, 5)], "copying")


@pytest.mark.parametrize("high_watermark", [-1, 2, (1 << 63) - 1])
def test_whatever_end_a_source_tells_what_follows_is_copied_once(high_watermark: int) -> None:
    script = Script()
    script.locate()
    script.survey(0, max(high_watermark, 0))
    for _ in range(2):
        script.fetch(batch(0, 2), batch(3, 5), high_watermark=high_watermark)
    assert (script.offsets, script.kinds) == ([(0, 2), (3, 5)], [])


def test_a_repeated_answer_appends_nothing_twice() -> None:
    script = Script()
    script.locate()
    script.survey(0, 100)
    want = script.fetch(batch(0, 2))
    script.answer(want, batch(0, 2))
    assert script.offsets == [(0, 2)]


def test_an_answer_of_an_earlier_leader_is_dropped() -> None:
    script = Script()
    script.locate()
    script.survey(0, 100)
    want = script.copier.wants(1000)
    assert isinstance(want, Fetch)
    script.locate(epoch=1)
    script.answer(want, batch(0, 2))
    assert script.offsets == []
    assert isinstance(script.copier.wants(1000), Survey)


def test_a_new_epoch_is_saved_before_its_first_batch() -> None:
    script = Script()
    script.copying(batch(0, 2, epoch=4), batch(3, 5, epoch=6))
    assert script.journal.states[-1].epochs == ((4, 0), (6, 3))
    assert script.journal.arrivals == [(0, 2, 1000), (3, 5, 1000)]
    assert script.journal.states[-1].epoch_before(3) == 4


def test_what_precedes_rot_is_appended_and_the_rot_is_told_once() -> None:
    script = Script()
    script.copying(batch(0, 2), rotten(3, 5), batch(6, 8))
    assert script.copier.wants(1099) is None
    script.fetch(rotten(3, 5), now_ms=1100)
    assert script.copier.wants(1299) is None, "the pause grows"
    assert (script.offsets, script.kinds, script.copier.condition) == ([(0, 2)], [Kind.ROT], "rotten")
    script.fetch(batch(3, 5), now_ms=1300)
    assert (script.offsets, script.copier.condition) == ([(0, 2), (3, 5)], "copying")


@pytest.mark.parametrize(("magic", "kind"), [(7, Kind.ROT), (1, Kind.FORMAT)])
def test_what_precedes_bytes_that_are_no_batch_is_appended(magic: int, kind: Kind) -> None:
    other = bytearray(batch(3, 5))
    other[16] = magic
    script = Script()
    script.copying(batch(0, 2), bytes(other))
    (finding,) = script.journal.findings
    assert (script.offsets, finding.kind, finding.first_offset) == ([(0, 2)], kind, 3)


def test_a_gap_in_the_sources_log_stops_the_copy() -> None:
    script = Script()
    script.copying(batch(0, 2), batch(5, 6))
    assert script.copier.phase is Phase.STOPPED
    (finding,) = script.journal.findings
    assert (finding.kind, finding.first_offset, finding.last_offset, finding.count) == (Kind.GAP, 3, 4, 2)
    assert script.journal.states[-1].stopped == finding


def test_a_gap_in_a_compacted_topic_is_legal() -> None:
    script = Script(is_compacted=True)
    script.copying(batch(0, 2), batch(5, 6))
    assert (script.offsets, script.kinds) == ([(0, 2), (5, 6)], [])


@pytest.mark.parametrize(
    ("answer", "kind", "offsets"),
    [
        ({"start": 8, "end": 20}, Kind.GAP, (3, 7)),
        ({"start": 0, "end": 2}, Kind.TRUNCATION, (2, 2)),
        ({"start": 0, "end": 9, "epoch": 0, "epoch_end": 1}, Kind.TRUNCATION, (1, 2)),
        ({"start": 0, "end": 9, "tail": read_header(batch(0, 1))}, Kind.TRUNCATION, (0, 2)),
    ],
)
def test_a_source_that_lost_something_stops_the_copy(
    answer: dict[str, Any], kind: Kind, offsets: tuple[int, int]
) -> None:
    script = Script()
    script.copying(batch(0, 2))
    script.locate(epoch=1)
    script.survey(**answer)
    (finding,) = script.journal.findings
    assert (finding.kind, (finding.first_offset, finding.last_offset)) == (kind, offsets)
    assert script.copier.wants(10_000) is None


def test_a_source_that_kept_everything_goes_on_after_an_election() -> None:
    script = Script()
    script.copying(batch(0, 2))
    script.locate(epoch=1)
    script.survey(0, 9, epoch=0, epoch_end=3, tail=read_header(batch(0, 2)))
    script.fetch(batch(3, 4, epoch=1))
    assert (script.offsets, script.kinds) == ([(0, 2), (3, 4)], [])


def test_another_topic_id_stops_the_copy_and_a_restart_keeps_it_stopped() -> None:
    script = Script()
    script.copying(batch(0, 2))
    script.locate(topic_id=OTHER_ID)
    assert script.kinds == [Kind.RECREATION]
    again = Script(end=3, state=script.journal.states[-1])
    again.locate(topic_id=OTHER_ID)
    assert (again.copier.phase, again.kinds, again.copier.wants(9_000)) == (Phase.STOPPED, [], None)


def test_a_resume_tells_what_it_passes_over() -> None:
    script = Script()
    script.copying(batch(0, 2), batch(5, 6))
    stopped = script.journal.findings[0]
    script.copier.resume("another stop", 2000)
    assert script.copier.phase is Phase.STOPPED
    script.copier.resume(stop_id(stopped), 2000)
    script.locate(now_ms=2000)
    script.survey(0, 100, 2000)
    assert script.fetch(batch(5, 6), now_ms=2000).offset == 3
    assert script.kinds == [Kind.GAP, Kind.LOSS]
    assert (script.journal.findings[1].first_offset, script.journal.findings[1].last_offset) == (3, 4)


def test_a_resume_after_a_recreation_waits_until_the_source_is_past_the_copy() -> None:
    script = Script()
    script.copying(batch(0, 2))
    script.locate(topic_id=OTHER_ID)
    script.copier.resume(stop_id(script.journal.findings[0]), 2000)
    script.locate(topic_id=OTHER_ID, now_ms=2000)
    script.survey(0, 1, 2000)
    assert script.copier.wants(2050) is None
    script.survey(0, 9, 2100)
    script.fetch(batch(2, 3), batch(4, 5), now_ms=2100)
    assert script.offsets == [(0, 2), (4, 5)], "a batch that overlaps the copy is passed over"
    told = [(f.kind, f.first_offset, f.last_offset) for f in script.journal.findings]
    assert told == [(Kind.RECREATION, 0, 2), (Kind.LOSS, 0, 2), (Kind.LOSS, 3, 3)]


def test_only_a_lasting_absence_is_told() -> None:
    script = Script()
    script.copying(batch(0, 2))
    script.copier.located(None, 2000)
    script.copier.located(None, 2000 + VANISHED_AFTER_MS - 1)
    assert script.kinds == []
    script.copier.located(None, 2000 + VANISHED_AFTER_MS)
    script.copier.located(None, 3000 + VANISHED_AFTER_MS)
    assert script.kinds == [Kind.VANISHED]
    script.locate(now_ms=90_000)
    script.survey(0, 100, 90_000)
    script.fetch(batch(3, 3), now_ms=90_000)
    assert script.offsets == [(0, 2), (3, 3)]


def test_old_message_formats_stop_the_copy() -> None:
    script = Script()
    old = bytearray(batch(0, 2))
    old[16] = 1
    script.copying(bytes(old))
    assert script.kinds == [Kind.FORMAT]


def refused_at(now_ms: int) -> Script:
    script = Script()
    script.copying(batch(0, 2))
    want = script.copier.wants(now_ms)
    assert isinstance(want, Fetch)
    script.copier.refused(want, ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms)
    return script


def test_a_refusal_is_followed_by_a_pause_and_a_survey() -> None:
    script = refused_at(1000)
    assert script.copier.wants(1099) is None
    assert isinstance(script.copier.wants(1100), Survey)


def test_a_clock_that_is_set_back_ends_the_pause() -> None:
    script = refused_at(10_000)
    assert script.copier.wants(10_099) is None
    assert isinstance(script.copier.wants(9_000), Survey)


def skip_order(script: Script, last_offset: int) -> SkipOrder:
    assert script.copier.state.rotten is not None
    return SkipOrder(rot=stop_id(script.copier.state.rotten), last_offset=last_offset)


def told(script: Script) -> list[tuple[Kind, int, int]]:
    return [(f.kind, f.first_offset, f.last_offset) for f in script.journal.findings]


def test_a_skip_passes_over_the_rotten_batch_and_nothing_else() -> None:
    script = Script()
    script.copying(batch(0, 2), rotten(3, 5), batch(6, 8))
    order = skip_order(script, 5)
    script.copier.skip(skip_order(script, 6), 2000)
    script.copier.skip(SkipOrder(rot="another", last_offset=5), 2000)
    assert script.copier.condition == "rotten"
    script.copier.skip(order, 2000)
    script.copier.skip(order, 2000)
    assert (script.copier.condition, script.copier.lag_messages(2000)) == ("copying", 94)
    assert script.fetch(batch(6, 8), now_ms=2000).offset == 6
    assert script.offsets == [(0, 2), (6, 8)]
    assert told(script) == [(Kind.ROT, 3, 5), (Kind.LOSS, 3, 5)]
    assert "skipped on order" in script.journal.findings[1].reason


def test_a_skip_survives_a_restart_before_and_after_it() -> None:
    script = Script()
    script.copying(batch(0, 2), rotten(3, 5))
    again = Script(end=3, state=script.journal.states[-1])
    assert again.copier.condition == "rotten"
    again.copier.skip(skip_order(script, 5), 2000)
    third = Script(end=3, state=again.journal.states[-1])
    third.locate()
    third.survey(0, 100)
    assert third.fetch(rotten(3, 5), batch(6, 8)).offset == 6
    assert (third.offsets, third.kinds) == ([(6, 8)], [])


def test_a_skip_at_the_beginning_keeps_where_the_copy_begins() -> None:
    script = Script()
    script.locate()
    script.survey(7, 100)
    script.fetch(rotten(7, 9), batch(10, 11))
    script.copier.skip(skip_order(script, 9), 1000)
    script.fetch(batch(10, 11))
    assert (script.target.log_start_offset, script.offsets) == (7, [(10, 11)])


def test_a_gap_behind_what_was_skipped_stops_the_copy() -> None:
    script = Script()
    script.copying(batch(0, 2), rotten(3, 5))
    script.copier.skip(skip_order(script, 5), 1000)
    script.fetch(batch(8, 9))
    assert told(script)[-1] == (Kind.GAP, 6, 7)


def test_what_is_skipped_and_cut_off_at_the_source_makes_way_for_what_comes_there() -> None:
    script = Script()
    script.copying(batch(0, 2), rotten(3, 5))
    script.copier.skip(skip_order(script, 5), 1000)
    script.locate(epoch=1)
    script.survey(0, 3, epoch=0, epoch_end=3, tail=read_header(batch(0, 2)))
    assert script.fetch(batch(3, 4, epoch=1)).offset == 3
    assert script.offsets == [(0, 2), (3, 4)]


def test_rot_that_was_right_at_last_cannot_be_skipped() -> None:
    script = Script()
    script.copying(batch(0, 2), rotten(3, 5))
    order = skip_order(script, 5)
    again = Script(end=6, state=script.journal.states[-1])
    again.copier.skip(order, 2000)
    assert (again.kinds, again.journal.states) == ([], [])


def test_rot_without_an_end_is_skipped_as_far_as_a_person_says() -> None:
    script = Script()
    no_batch = bytearray(batch(3, 5))
    no_batch[16] = 7
    script.copying(batch(0, 2), bytes(no_batch))
    assert told(script) == [(Kind.ROT, 3, -1)]
    script.copier.skip(skip_order(script, 2), 1000)
    assert script.copier.condition == "rotten"
    script.copier.skip(skip_order(script, 5), 1000)
    assert script.fetch(batch(6, 8)).offset == 6
    assert told(script)[-1] == (Kind.LOSS, 3, 5)


@pytest.mark.parametrize(
    ("delta", "following", "offsets"),
    [
        (2, b"", (3, 5)),
        (40, b"", (3, -1)),
        (40, batch(6, 8), (3, 5)),
        (40, rotten(6, 8), (3, -1)),
        (-4, batch(6, 8), (3, 5)),
        (-4, b"", (3, -1)),
    ],
)
def test_a_rotten_header_is_not_believed_against_the_batch_behind_it(
    delta: int, following: bytes, offsets: tuple[int, int]
) -> None:
    liar = bytearray(rotten(3, 5))
    liar[23:27] = delta.to_bytes(4, "big", signed=True)
    script = Script()
    script.copying(batch(0, 2), bytes(liar), following)
    assert told(script) == [(Kind.ROT, *offsets)]


@pytest.mark.parametrize(
    ("following", "left"),
    [(batch(8, 9), [(Kind.LOSS, 5, 7)]), (batch(5, 9), []), (rotten(8, 9), [(Kind.ROT, 8, 9)])],
)
def test_what_a_skip_leaves_of_rot_in_a_compacted_topic_is_told(
    following: bytes, left: list[tuple[Kind, int, int]]
) -> None:
    liar = bytearray(rotten(3, 5))
    liar[23:27] = (40).to_bytes(4, "big")
    script = Script(is_compacted=True)
    script.copying(batch(0, 2), bytes(liar))
    script.copier.skip(skip_order(script, 4), 1000)
    before = told(script)
    script.fetch(bytes(liar), following)
    assert told(script)[len(before) :] == left


def test_a_copied_batch_that_rots_later_stops_nothing_whatever_it_claims() -> None:
    script = Script()
    script.copying(batch(0, 2), batch(3, 5))
    liar = bytearray(rotten(3, 5))
    liar[23:27] = (40).to_bytes(4, "big")
    script.fetch(bytes(liar), batch(6, 8))
    assert (script.offsets[-1], script.kinds) == ((6, 8), [])


def test_lag_is_not_known_unless_the_source_has_just_answered() -> None:
    script = Script()
    assert (script.copier.lag_messages(1000), script.copier.lag_ms(1000)) == (None, None)
    script.copying(batch(0, 2))
    assert (script.copier.lag_messages(1000), script.copier.lag_ms(1000)) == (97, 500)
    assert script.copier.lag_messages(1000 + LAG_KNOWN_MS + 1) is None
    script.copier.failed("refused", 1200)
    assert (script.copier.lag_messages(1200), script.copier.lag_ms(1200)) == (None, None)


def test_lag_of_a_stopped_partition_is_not_known() -> None:
    script = Script()
    script.copying(batch(0, 2), batch(5, 6))
    assert script.copier.condition == "stopped"
    assert (script.copier.lag_messages(1000), script.copier.lag_ms(1000)) == (None, None)


def test_the_age_of_a_copy_is_that_of_its_last_batch_after_a_restart_too() -> None:
    script = Script()
    script.copying(batch(0, 2))
    script.locate(epoch=1)
    script.copier.progress.max_timestamp = -1
    script.survey(0, 100, tail=read_header(batch(0, 2)))
    assert script.copier.lag_ms(1000) == 500


def test_a_paused_copy_asks_and_takes_nothing_and_is_surveyed_when_it_goes_on() -> None:
    script = Script()
    script.copying(batch(0, 9))
    want = script.copier.wants(2000)
    assert isinstance(want, Fetch)
    script.copier.pause(is_paused=True)
    assert (script.copier.condition, script.copier.awaits_metadata) == ("paused", True)
    script.answer(want, batch(10, 19))
    script.locate()
    assert script.copier.wants(3000) is None
    assert script.target.log_end_offset == 10
    script.copier.pause(is_paused=False)
    script.locate()
    assert isinstance(script.copier.wants(3000), Survey)


def test_a_copy_that_is_to_start_later_asks_where_and_begins_there_without_a_finding() -> None:
    script = Script(state=replace(STATE, start=1_700_000_000_000))
    script.locate()
    want = script.copier.wants(1000)
    assert isinstance(want, Survey)
    assert want.start == 1_700_000_000_000
    script.survey(0, 100, begin=45)
    assert (script.journal.states[-1].start, script.journal.states[-1].begins_at) == (None, 45)
    assert script.copier.lag_messages(1000) == 55
    assert script.fetch(batch(40, 49), batch(50, 59)).offset == 45
    assert (script.target.log_start_offset, script.offsets) == (40, [(40, 49), (50, 59)])
    assert script.fetch().offset == 60
    assert script.kinds == []


def test_where_a_copy_begins_is_written_before_anything_is_asked_for() -> None:
    script = Script(state=replace(STATE, start=-1))
    script.locate()
    script.journal.commit()
    script.journal.holds = True
    script.survey(0, 100, begin=100)
    assert script.copier.wants(1000) is None
    script.journal.commit()
    later = Script(state=script.journal.states[-1])
    later.locate()
    want = later.copier.wants(1000)
    assert isinstance(want, Survey)
    assert want.start is None, "another leader does not decide again"
    later.survey(0, 130)
    assert later.fetch(batch(100, 129), high_watermark=130).offset == 100
    assert (later.offsets, later.kinds) == ([(100, 129)], [])


def test_a_difference_is_told_once_lives_on_and_ends_when_the_copy_is_found_equal_there() -> None:
    script = Script(end=50)
    script.locate()
    for _ in range(2):
        script.copier.checked(0, 7, (7, "the source has a, the copy b"), 1000)
    (told,) = script.journal.findings
    assert (told.kind, told.first_offset, told.last_offset) == (Kind.DIFFERENCE, 7, 7)
    later = Script(end=50, state=script.journal.states[-1])
    assert later.copier.state.different == told
    later.copier.checked(0, 7, (7, "the source has a, the copy b"), 2000)
    assert later.journal.findings == []
    later.copier.checked(8, 50, None, 2000)
    assert later.copier.state.different == told, "where it differs was not compared"
    later.copier.checked(0, 50, None, 2000)
    assert later.journal.states[-1].different is None
