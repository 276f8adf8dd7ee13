"""One follower, answer by answer, over a log that a script cuts and fills."""

from __future__ import annotations

import pytest

from headrace.broker.errors import (
    CorruptMessageError,
    ErrorCode,
    KafkaError,
    StorageError,
    UnsupportedForMessageFormatError,
)
from headrace.broker.log.results import EpochEndOffset
from headrace.broker.replication.follower import (
    AWAITING_CONTROLLER,
    BACKOFF_MS_MIN,
    Append,
    AskOffsets,
    Command,
    Follower,
    Phase,
    StartAt,
    TruncateTo,
)
from headrace.broker.wire.batches import Record, encode_batch
from headrace.broker.wire.client.replica_fetch import DivergingEpoch, FetchedPartition, FetchQuestion

BACKOFF_MS = BACKOFF_MS_MIN


class EpochLog:
    """A log of which only epochs and offsets are kept: (epoch, start offset), oldest first."""

    def __init__(self, *epochs: tuple[int, int], end: int, start: int = 0, committed: int = 0) -> None:
        self.epochs = list(epochs)
        self.log_start_offset, self.log_end_offset, self.high_watermark = start, end, max(start, committed)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        if not self.epochs or epoch < 0 or epoch > self.latest_epoch:
            return EpochEndOffset(-1, -1)
        floor = max((e for e, _ in self.epochs if e <= epoch), default=epoch)
        end = min((start for e, start in self.epochs if e > epoch), default=self.log_end_offset)
        return EpochEndOffset(floor, end)

    def cut(self, offset: int) -> None:
        self.log_end_offset = offset
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]


def follower(log: EpochLog, epoch: int = 9) -> Follower:
    return Follower("events", 0, log, leader_epoch=epoch, backoff_ms=BACKOFF_MS)


def found(
    error: int = 0,
    *,
    watermark: int = 0,
    start: int = 0,
    diverging: tuple[int, int] | None = None,
    records: bytes = b"",
) -> FetchedPartition:
    parted = None if diverging is None else DivergingEpoch(*diverging)
    return FetchedPartition(error, watermark, start, parted, memoryview(records))


def answer(one: Follower, what: FetchedPartition, now_ms: int = 0) -> Command | None:
    """Ask, and be answered."""
    one.asked = one.question(now_ms)
    assert one.asked is not None
    return one.answered(what, now_ms)


def cut(one: Follower, log: EpochLog, command: Command | None) -> None:
    assert isinstance(command, TruncateTo)
    log.cut(command.offset)
    one.truncated()


def test_it_asks_from_its_end_with_its_epochs_and_appends_what_comes() -> None:
    log = EpochLog((3, 0), end=10, start=2, committed=8)
    one = follower(log)
    assert one.question(0) == FetchQuestion(9, 10, 3, 2)
    assert not one.is_in_sync
    command = answer(one, found(watermark=15, start=4, records=b"batches"))
    assert command == Append(records=memoryview(b"batches"), high_watermark=15, log_start_offset=4)
    log.log_end_offset = 12
    one.appended(15)
    assert (one.lag, one.is_in_sync) == (3, False)
    assert one.question(0) == FetchQuestion(9, 12, 3, 2)
    assert answer(one, found(watermark=12)) == Append(records=None, high_watermark=12, log_start_offset=0)
    one.appended(12)
    assert one.is_in_sync


def test_an_answer_to_another_question_is_dropped() -> None:
    log = EpochLog((3, 0), end=10)
    one = follower(log)
    assert one.answered(found(records=b"x"), 0) is None, "it has asked nothing"
    one.asked = one.question(0)
    log.log_end_offset = 11
    assert one.answered(found(records=b"x"), 0) is None


def test_where_the_leader_does_not_reach_as_far_it_cuts() -> None:
    log = EpochLog((3, 0), end=10)
    one = follower(log)
    command = answer(one, found(diverging=(3, 6)))
    assert isinstance(command, TruncateTo)
    assert (command.offset, one.phase, one.question(0)) == (6, Phase.TRUNCATING, None)
    cut(one, log, command)
    assert one.question(0) == FetchQuestion(9, 6, 3, 0)


def test_an_epoch_that_the_leader_does_not_know_is_cut_step_by_step() -> None:
    """KIP-279: the leader names the epoch before, which may not be known here."""
    log = EpochLog((1, 0), (4, 20), end=30)
    one = follower(log)
    command = answer(one, found(diverging=(3, 25)))
    assert isinstance(command, TruncateTo)
    assert command.offset == 20, "epoch 3 is not known here: back to the end of 1"
    cut(one, log, command)
    assert one.question(0) == FetchQuestion(9, 20, 1, 0)
    command = answer(one, found(diverging=(1, 12)))
    assert isinstance(command, TruncateTo)
    assert command.offset == 12


def test_the_nearer_of_two_ends_of_an_epoch_is_where_logs_part() -> None:
    log = EpochLog((1, 0), (2, 20), end=30)
    command = answer(follower(log), found(diverging=(1, 25)))
    assert isinstance(command, TruncateTo)
    assert command.offset == 20


def test_an_epoch_in_which_it_led_and_appended_nothing_is_only_forgotten() -> None:
    log = EpochLog((1, 0), (5, 30), end=30)
    one = follower(log)
    command = answer(one, found(diverging=(1, 30)))
    assert isinstance(command, TruncateTo)
    assert command.offset == 30
    cut(one, log, command)
    assert one.question(0) == FetchQuestion(9, 30, 1, 0)


@pytest.mark.parametrize("diverging", [(3, 10), (3, 99), (9, 12), (3, -1)])
def test_a_leader_that_says_they_part_where_they_do_not_is_asked_after_a_pause(
    diverging: tuple[int, int],
) -> None:
    one = follower(EpochLog((3, 0), end=10))
    assert answer(one, found(diverging=diverging), 50) is None
    assert one.question(50) is None
    assert "where this log does not part" in one.problem


@pytest.mark.parametrize("diverging", [(3, -7), (-5, 3)])
def test_an_impossible_place_to_part_fails_the_partition(diverging: tuple[int, int]) -> None:
    one = follower(EpochLog((3, 0), end=10))
    assert answer(one, found(diverging=diverging)) is None
    assert one.phase is Phase.FAILED
    assert one.cut is None


def test_batches_without_known_epochs_are_kept_up_to_the_watermark() -> None:
    log = EpochLog(end=10, committed=4)
    one = follower(log)
    assert isinstance(one.wanted_cut(0), TruncateTo)
    assert one.question(0) is None
    cut(one, log, one.wanted_cut(0))
    assert one.question(0) == FetchQuestion(9, 4, -1, 0)


def test_an_empty_log_asks_at_once() -> None:
    assert follower(EpochLog(end=0)).question(0) == FetchQuestion(9, 0, -1, 0)


def test_beyond_the_leaders_end_it_cuts_there() -> None:
    log = EpochLog((3, 0), end=10)
    one = follower(log)
    assert answer(one, found(ErrorCode.OFFSET_OUT_OF_RANGE)) == AskOffsets()
    assert (one.question(0), one.wants_offsets(0)) == (None, True)
    command = one.offsets_told(0, 7, 0)
    assert isinstance(command, TruncateTo)
    assert command.offset == 7


def test_before_the_leaders_begin_it_starts_there_anew() -> None:
    log = EpochLog((3, 0), end=10)
    one = follower(log)
    answer(one, found(ErrorCode.OFFSET_OUT_OF_RANGE))
    command = one.offsets_told(40, 90, 0)
    assert isinstance(command, StartAt)
    assert command.offset == 40
    log.log_start_offset = log.log_end_offset = 40
    log.epochs = []
    one.truncated()
    assert one.question(0) == FetchQuestion(9, 40, -1, 40)


def test_in_range_again_it_goes_on() -> None:
    one = follower(EpochLog((3, 0), end=10))
    answer(one, found(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert one.offsets_told(0, 12, 0) is None
    assert one.question(0) is not None


def test_offsets_that_cannot_be_are_asked_for_again() -> None:
    one = follower(EpochLog((3, 0), end=10))
    answer(one, found(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert one.offsets_told(-1, -1, 0) is None
    assert not one.wants_offsets(BACKOFF_MS - 1)
    assert one.wants_offsets(BACKOFF_MS)
    one.offsets_refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, BACKOFF_MS)
    assert not one.wants_offsets(BACKOFF_MS)


def test_a_leader_in_a_later_epoch_is_not_asked_again() -> None:
    one = follower(EpochLog((3, 0), end=10))
    answer(one, found(ErrorCode.FENCED_LEADER_EPOCH))
    assert (one.phase, one.problem) == (Phase.FAILED, AWAITING_CONTROLLER)
    assert one.question(10**9) is None


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_any_other_error_makes_it_pause(error: ErrorCode) -> None:
    one = follower(EpochLog((3, 0), end=10))
    assert answer(one, found(error), 100) is None
    assert one.waits_until_ms() == 100 + BACKOFF_MS
    assert one.question(99 + BACKOFF_MS) is None
    assert one.question(100 + BACKOFF_MS) is not None
    assert one.waits_until_ms() is None


@pytest.mark.parametrize("error", [CorruptMessageError("bad"), StorageError("full")])
def test_batches_that_cannot_be_appended_are_fetched_again_later(error: KafkaError) -> None:
    one = follower(EpochLog((3, 0), end=10))
    answer(one, found(records=b"bad"))
    one.not_done(error, 0)
    assert (one.question(0), one.phase, one.problem) == (None, Phase.FETCHING, str(error))
    assert one.question(BACKOFF_MS) is not None


def test_what_will_never_be_appended_fails_the_partition() -> None:
    one = follower(EpochLog((3, 0), end=10))
    answer(one, found(records=b"old"))
    one.not_done(UnsupportedForMessageFormatError("format 1"), 0)
    assert one.phase is Phase.FAILED
    assert one.question(10**9) is None


def test_a_log_that_could_not_be_cut_is_cut_later() -> None:
    one = follower(EpochLog((3, 0), end=10))
    command = answer(one, found(diverging=(3, 6)))
    one.not_done(StorageError("full"), 0)
    assert one.wanted_cut(0) is None
    assert one.wanted_cut(BACKOFF_MS) == command


def test_pauses_grow_until_it_goes_well_again() -> None:
    log = EpochLog((3, 0), end=10)
    one = Follower("events", 0, log, leader_epoch=9, backoff_ms=300)
    now_ms, pauses = 0, []
    for _ in range(5):
        answer(one, found(ErrorCode.UNKNOWN_LEADER_EPOCH), now_ms)
        until_ms = one.waits_until_ms()
        assert until_ms is not None
        pauses.append(until_ms - now_ms)
        now_ms = until_ms
    assert pauses == [50, 100, 200, 300, 300]
    answer(one, found(), now_ms)
    one.appended(10)
    answer(one, found(ErrorCode.UNKNOWN_LEADER_EPOCH), now_ms)
    assert one.waits_until_ms() == now_ms + 50


def first_batch(base_offset: int, count: int) -> bytes:
    return bytes(encode_batch([Record(0, 0, None, b"x", [])] * count, base_offset=base_offset))


def test_a_log_that_begins_inside_a_batch_of_the_leaders_begins_with_that_batch() -> None:
    """DeleteRecords moved the leader's begin to 40, inside of the batch from 35 on."""
    log = EpochLog(end=40, start=40)
    one = follower(log)
    command = answer(one, found(start=40, watermark=50, records=first_batch(35, 10)))
    assert isinstance(command, StartAt)
    assert command.offset == 35
    assert command.then is not None
    assert (command.then.log_start_offset, command.then.high_watermark) == (40, 50)
    one.not_done(StorageError("full"), 0)
    assert one.wanted_cut(BACKOFF_MS) is None, "what was to be appended is not there any more"
    assert one.question(BACKOFF_MS) is not None


@pytest.mark.parametrize(("base_offset", "count"), [(40, 10), (30, 10), (41, 1)])
def test_any_other_first_batch_is_only_appended_or_refused(base_offset: int, count: int) -> None:
    one = follower(EpochLog(end=40, start=40))
    assert isinstance(answer(one, found(records=first_batch(base_offset, count))), Append)


def test_a_batch_below_the_end_of_a_log_that_holds_some_empties_nothing() -> None:
    one = follower(EpochLog((3, 0), end=40, start=10))
    assert isinstance(answer(one, found(records=first_batch(35, 10))), Append)
