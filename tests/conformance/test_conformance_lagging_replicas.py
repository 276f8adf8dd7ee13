"""A replica in sync that does not fetch: what its leader answers meanwhile. The replica is a script, as is the controller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from processes import eventually
from scripted_replica import BROKER_ID, Question, ScriptedReplica, records_of
from sessions import LIST_OFFSETS, Message, Pair, Session
from test_conformance_diverging_logs import OWN_ID, Partition

from headrace.broker.errors import ErrorCode

DELETE_RECORDS = 21
LATEST, EARLIEST = -1, -2


@contextmanager
def led_with_a_lagging_watermark(pair: Pair, session: Session, name: str) -> Iterator[Partition]:
    """The broker followed up to offset 3 and leads now, with another in sync of which it has not heard how far it is."""
    partition = Partition(pair, session, name)
    with ScriptedReplica() as other:
        other.answers = {Question(1, 0, 0): {"records": records_of((1, 1, 1))}}
        partition.other_lives(other.address)
        try:
            partition.led_by(BROKER_ID, 1, other.address)
            eventually(lambda: Question(1, 3, 1) in other.asked, what="a follower with the leader's log")
            partition.led_by(OWN_ID, 2, other.address, in_sync=[BROKER_ID])
            yield partition
        finally:
            partition.other_lives(None)


def test_no_end_is_told_before_the_watermark_is_in_the_leaders_own_epoch(pair: Pair) -> None:
    """KIP-207; versions that do not know the error are told that there is no leader."""

    def script(session: Session) -> None:
        with led_with_a_lagging_watermark(pair, session, "lagging-ends") as partition:
            for version in range(1, 10):
                for timestamp in (LATEST, EARLIEST, 0):
                    wanted = {"partition_index": 0, "timestamp": timestamp}
                    topics = [{"name": partition.name, "partitions": [wanted]}]
                    message: Message = {"replica_id": -1, "topics": topics}
                    session.ask(LIST_OFFSETS, version, message, note=f"{timestamp}")
            partition.fetch(12, 2, 3, 1, BROKER_ID, noted=False)
            session.ask(LIST_OFFSETS, 9, message, note="the other replica has come")

    transcript = pair.compare(script)
    codes = {
        answer["topics"][0]["partitions"][0]["error_code"]
        for label, answer in transcript
        if label.startswith("ListOffsets")
    }
    assert codes == {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE}


def test_deleted_records_are_waited_for_on_every_live_replica(pair: Pair) -> None:
    def script(session: Session) -> None:
        with led_with_a_lagging_watermark(pair, session, "lagging-deletions") as partition:
            partition.fetch(12, 2, 3, 1, BROKER_ID, noted=False)
            for version in range(3):
                wanted = {"name": partition.name, "partitions": [{"partition_index": 0, "offset": version}]}
                message: Message = {"topics": [wanted], "timeout_ms": 300}
                session.ask(DELETE_RECORDS, version, message, note=f"up to {version}")

    transcript = pair.compare(script)
    assert transcript[-2][1]["topics"][0]["partitions"][0]["error_code"] == ErrorCode.REQUEST_TIMED_OUT
