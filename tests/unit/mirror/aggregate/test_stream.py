"""One source partition under its owner, step by step."""

from uuid import UUID

import pytest

from headrace.broker.wire.batches import Record, encode_batch, read_header, set_crc
from headrace.mirror.aggregate.position import Position
from headrace.mirror.aggregate.stream import Phase, Rot, Stream
from headrace.mirror.memory.state import SkipOrder
from headrace.mirror.questions import UNKNOWN, Surveyed

ID = UUID(int=7)


def batch(base: int, count: int = 10, *, epoch: int = 4) -> bytes:
    records = [Record(0, 1, None, b"%d" % n, []) for n in range(count)]
    return bytes(encode_batch(records, base_offset=base, leader_epoch=epoch))


def located(
    next_sequence: int | None = None,
    *,
    start: int = 0,
    end: int = 500,
    epoch_end: int = -1,
    at: int = 100,
    target_offset: int = -1,
    lost: str = "",
) -> Stream:
    stream = Stream(Position(producer_id=9, topic_id=ID, offset=at, sequence=50, leader_epoch=4))
    found = Surveyed(log_start_offset=start, log_end_offset=end, epoch=4, epoch_end=epoch_end)
    stream.located(stream.survey(ID, 6), found, next_sequence, target_offset=target_offset, lost=lost)
    return stream


def fetched(stream: Stream, *batches: bytes) -> None:
    offset = stream.wants()
    assert offset is not None
    stream.fetched(offset, memoryview(b"".join(batches)), [])


def sequences(stream: Stream) -> list[int]:
    return [read_header(parcel.batch).base_sequence for parcel in stream.outbox]


def test_batches_go_out_in_order_and_the_position_follows_what_is_acknowledged() -> None:
    stream = located(50)
    fetched(stream, batch(100), batch(110, 5))
    assert sequences(stream) == [50, 60]
    assert stream.wants() is None
    stream.acknowledged()
    assert (stream.position.offset, stream.position.sequence) == (110, 60)
    stream.acknowledged()
    assert (stream.position.offset, stream.position.sequence, stream.wants()) == (115, 65, 115)


def test_what_the_target_has_is_passed_over_and_never_sent_again() -> None:
    stream = located(80)
    fetched(stream, batch(100), batch(110))
    assert (sequences(stream), stream.position.offset) == ([], 100)
    fetched(stream, batch(120), batch(130))
    assert sequences(stream) == [80]
    stream.acknowledged()
    assert (stream.position.offset, stream.position.sequence) == (140, 90)


def test_the_place_to_search_from_follows_what_is_known_of_the_target() -> None:
    stream = located(50, target_offset=1000)
    assert stream.position.target_offset == 1000
    fetched(stream, batch(100), batch(110))
    stream.acknowledged(1200)
    assert (stream.position.offset, stream.position.target_offset) == (110, 1201)
    stream.acknowledged()
    assert stream.position.target_offset == 1201, "the broker did not say where"
    stream.look_again()
    assert stream.phase is Phase.LOCATING
    ahead = located(70, target_offset=1000)
    assert ahead.position.target_offset == -1, "what is beyond the position lies below"


def test_it_stops_where_nobody_knows_what_the_target_has() -> None:
    stream = located(None, lost="forgotten: …")
    assert (stream.phase, stream.problem) == (Phase.STOPPED, "forgotten: …")


def test_after_a_refusal_it_begins_at_its_position_again() -> None:
    stream = located(50)
    fetched(stream, batch(100), batch(110))
    stream.acknowledged()
    stream.refused("not the leader")
    assert (stream.phase, stream.problem, stream.wants()) == (Phase.LOCATING, "not the leader", None)
    found = Surveyed(log_start_offset=0, log_end_offset=500)
    stream.located(stream.survey(ID, 6), found, 60)
    assert (stream.phase, stream.wants(), stream.problem) == (Phase.COPYING, 110, "")


def test_a_target_that_forgot_the_producer_takes_the_positions_word() -> None:
    assert located(None).wants() == 100


def test_an_answer_to_an_earlier_question_changes_nothing() -> None:
    stream = located(50)
    stream.fetched(90, memoryview(batch(90)), [])
    assert (stream.wants(), len(stream.outbox)) == (100, 0)


def test_a_batch_that_begins_before_what_was_asked_and_ends_there_is_passed_over() -> None:
    stream = located(50)
    fetched(stream, batch(90), batch(100))
    assert sequences(stream) == [50]


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (located(50, start=120), "gap: the source begins at 120, and 100 comes next"),
        (located(50, end=80), "truncation: the source's log ends at 80"),
        (located(50, epoch_end=90), "truncation: "),
        (located(45), "loss: the target has lost the last 5 messages that it had acknowledged"),
    ],
)
def test_what_cannot_be_gone_on_from_stops_it(stream: Stream, reason: str) -> None:
    assert stream.phase is Phase.STOPPED
    assert stream.problem.startswith(reason)
    assert stream.wants() is None


def test_a_source_that_wrote_other_messages_within_one_epoch_stops_it() -> None:
    stream = located(50)
    ours, theirs = batch(100), batch(100, 9)
    fetched(stream, ours)
    stream.acknowledged()
    stream.refused("not the leader")
    survey = stream.survey(ID, 6)
    assert survey.tail is not None
    assert (survey.tail.base_offset, survey.tail.size) == (100, len(ours))
    for there, phase in ((ours, Phase.COPYING), (theirs, Phase.STOPPED)):
        stream.phase = Phase.LOCATING
        found = Surveyed(log_start_offset=0, log_end_offset=500, tail=read_header(there))
        stream.located(survey, found, 60)
        assert stream.phase is phase
    assert stream.problem.startswith("truncation: ")


def test_a_topic_that_was_made_anew_stops_it() -> None:
    stream = Stream(Position(producer_id=9, topic_id=ID, offset=0))
    survey = stream.survey(UUID(int=8), 6)
    stream.located(survey, Surveyed(log_start_offset=0, log_end_offset=5), None)
    assert stream.phase is Phase.STOPPED
    assert stream.problem.startswith("recreation: ")


def rotten(base: int) -> bytes:
    return batch(base)[:-1] + b"\xff"


def compacted(base: int) -> bytes:
    whole = bytearray(batch(base))
    whole[26] = 20  # a last offset delta of 20
    set_crc(whole, 0)
    return bytes(whole)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (rotten(100), "rot: the checksum of the source's batch at offset 100 is wrong"),
        (batch(105), "gap: the source goes on at 105, and 100 comes next"),
        (batch(95), "truncation: the source's batch at 95 reaches over 100, where another one ended"),
        (compacted(100), "compaction: the source's batch at offset 100 lacks messages that were in it"),
        (b"\x00" * 16 + b"\x01" + b"\x00" * 60, "format: "),
    ],
)
def test_a_batch_that_cannot_be_next_stops_it_once_those_before_it_are_brought(
    records: bytes, reason: str
) -> None:
    stream = located(50)
    fetched(stream, records)
    assert stream.phase is Phase.STOPPED
    assert stream.problem.startswith(reason)


def test_what_comes_before_a_bad_batch_is_brought() -> None:
    stream = located(50)
    fetched(stream, batch(100), rotten(110))
    assert (stream.phase, sequences(stream)) == (Phase.COPYING, [50])
    stream.acknowledged()
    fetched(stream, rotten(110))
    assert stream.phase is Phase.STOPPED


def test_a_target_whose_batches_are_others_stops_it() -> None:
    stream = located(55)
    fetched(stream, batch(100))
    assert stream.phase is Phase.STOPPED
    assert stream.problem.startswith("truncation: the target has 5 messages where")


def test_rot_that_is_given_up_is_passed_over_and_nothing_else() -> None:
    stream = located(50)
    fetched(stream, batch(100), rotten(110))
    assert [parcel.after.offset for parcel in stream.outbox] == [110], "what comes before it is brought first"
    stream.acknowledged()
    fetched(stream, rotten(110))
    assert stream.rotten == Rot(110, 119)
    orders = [SkipOrder(rot=Rot(*at).name, last_offset=at[1]) for at in ((110, 119), (110, 118), (109, 119))]
    assert [stream.rotten.is_ended_by(order) for order in orders] == [True, False, False]
    assert stream.rotten.offsets == "110-119"
    position = stream.passed_over(119)
    assert (position.offset, position.sequence, position.tail, position.leader_epoch) == (120, 60, None, -1)
    again = Stream(position)
    again.located(again.survey(ID, 6), Surveyed(log_start_offset=0, log_end_offset=500), 60)
    fetched(again, batch(120))
    assert (sequences(again), again.rotten) == ([60], None)


def test_rot_that_is_no_batch_ends_where_a_person_says() -> None:
    stream = located(50)
    fetched(stream, b"\0" * 8 + b"\0\0\0\5" + b"\0" * 4 + b"\2" + b"\0" * 60)
    assert stream.rotten == Rot(100, UNKNOWN)
    assert stream.rotten.offsets == "100-LAST"
    for last, is_ended in ((99, False), (100, True), (5000, True)):
        assert stream.rotten.is_ended_by(SkipOrder(rot=Rot(100, last).name, last_offset=last)) is is_ended
    assert stream.passed_over(5000).offset == 5001


def test_rot_of_which_the_target_may_have_messages_cannot_be_given_up() -> None:
    stream = located(60)
    fetched(stream, rotten(100))
    assert (stream.phase, stream.rotten) == (Phase.STOPPED, None)
