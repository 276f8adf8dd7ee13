"""Logs that part: the cases A to G of the public TLA+ model of Kafka's replication (Vanlightly, kafka-tlaplus, "Log
divergence"), with its offsets, from the leader's side and from the follower's, told to either kind by raw requests.

The broker is told by a controller's requests whom it follows, in which epoch; the other replica is a script. Figures and text of
the model differ in case G: the figure is right, the leader's epoch 1 ends at offset 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

import pytest
from processes import eventually
from scripted_replica import BROKER_ID, Question, ScriptedReplica, records_of
from sessions import (
    FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    Message,
    Pair,
    Session,
    batch,
    create_topic,
    produce_message,
)

from headrace.broker.errors import ErrorCode

LEADER_AND_ISR, UPDATE_METADATA = 4, 6
OWN_ID = 1


class Case(NamedTuple):
    """The epochs of the messages in both logs; `asked` (offset, last epoch) in leader epoch `epoch`, what the leader finds
    to be parting (epoch, where that ends), and where the follower cuts its log.
    """

    follower: tuple[int, ...]
    leader: tuple[int, ...]
    epoch: int
    asked: tuple[int, int]
    diverging: tuple[int, int] | None
    cut: int


CASES = {
    "A-behind-in-the-same-epoch": Case((1, 1), (1, 1, 1, 1), 2, (2, 1), None, 2),
    "B-behind-in-a-later-epoch": Case((1, 1), (1, 1, 2, 2), 3, (2, 1), None, 2),
    "C-ahead-in-the-same-epoch": Case((1, 1, 1, 1), (1, 1), 2, (4, 1), (1, 2), 2),
    "D-ahead-in-a-later-epoch": Case((1, 1, 2, 2), (1, 1), 3, (4, 2), (1, 2), 2),
    "E-forked-in-two-epochs": Case((1, 1, 2, 2), (1, 1, 3, 3), 4, (4, 2), (1, 2), 2),
    "F-forked-from-the-same-epoch": Case((1, 2, 2), (1, 1), 3, (3, 2), (1, 2), 1),
    "G-nothing-in-common": Case((2,), (1, 3), 4, (1, 2), (1, 1), 0),
}


class Partition:
    """Partition 0 of a topic of replicas 1, which is asked, and 2, which is a script, as a controller speaks of it."""

    def __init__(
        self, pair: Pair, session: Session, name: str, configs: dict[str, str] | None = None
    ) -> None:
        self.name, self.session = name, session
        self.topic_id: UUID = create_topic(session, name, configs=configs)
        chroot = "/kafka" if session._address == pair.kafka.address else "/headrace"
        self.office = {
            "controller_id": OWN_ID,
            "controller_epoch": int(pair.znodes.get(f"{chroot}/controller_epoch")[0]),
        }

    def led_by(
        self,
        leader: int,
        epoch: int,
        other: tuple[str, int] = ("127.0.0.1", 9),
        in_sync: Sequence[int] = (),
    ) -> None:
        """LeaderAndIsr: that replica leads, alone in sync unless others are named, too."""
        state = {
            "partition_index": 0,
            "controller_epoch": self.office["controller_epoch"],
            "leader": leader,
            "leader_epoch": epoch,
            "isr": [leader, *in_sync],
            "partition_epoch": epoch,
            "replicas": [OWN_ID, BROKER_ID],
            "adding_replicas": [],
            "removing_replicas": [],
            "is_new": False,
            "leader_recovery_state": 0,
        }
        own_host, own_port = self.session._address
        leaders = [
            {"broker_id": OWN_ID, "host_name": own_host, "port": own_port},
            {"broker_id": BROKER_ID, "host_name": other[0], "port": other[1]},
        ]
        message = {
            **self.office,
            "is_kraft_controller": False,
            "type": 1,
            "topic_states": [
                {"topic_name": self.name, "topic_id": self.topic_id, "partition_states": [state]}
            ],
            "live_leaders": leaders,
        }
        self.session.ask(LEADER_AND_ISR, 7, message, note=f"led by {leader} in {epoch}")

    def other_lives(self, other: tuple[str, int] | None) -> None:
        """UpdateMetadata: the script lives at that address, or not at all."""
        brokers = {OWN_ID: self.session._address}
        if other is not None:
            brokers[BROKER_ID] = other
        live = [
            {
                "id": number,
                "endpoints": [{"host": host, "port": port, "listener": "PLAINTEXT", "security_protocol": 0}],
                "rack": None,
            }
            for number, (host, port) in brokers.items()
        ]
        message = {**self.office, "topic_states": [], "live_brokers": live}
        self.session.ask(UPDATE_METADATA, 8, message)

    def appended(self, epochs: Sequence[int]) -> None:
        """Have the broker lead and append one message in each of these epochs."""
        led = 0
        for epoch in epochs:
            if epoch != led:
                self.led_by(OWN_ID, epoch)
                led = epoch
            told = self.session.look(PRODUCE, 9, produce_message(self.name, batch(b"a message")))
            assert told["responses"][0]["partition_responses"][0]["error_code"] == ErrorCode.NONE

    def fetch(
        self, version: int, epoch: int, offset: int, last_epoch: int, replica: int, *, noted: bool = True
    ) -> Message:
        """What the broker answers a follower, or a consumer (-1)."""
        wanted: Message = {
            "partition": 0,
            "current_leader_epoch": epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": last_epoch,
            "log_start_offset": 0,
            "partition_max_bytes": 1 << 20,
        }
        named = {"topic_id": self.topic_id} if version >= 13 else {"topic": self.name}
        message: Message = {"max_wait_ms": 0, "min_bytes": 0, "topics": [{**named, "partitions": [wanted]}]}
        if version < 15:
            message["replica_id"] = replica
        elif replica >= 0:
            message["replica_state"] = {"replica_id": replica, "replica_epoch": -1}
        if noted:
            note = f"{offset}@{last_epoch} in {epoch} of {replica}"
            answer = self.session.ask(FETCH, version, message, note=note)
        else:
            answer = self.session.look(FETCH, version, message)
        found: Message = answer["responses"][0]["partitions"][0]
        return found


@pytest.mark.parametrize("name", CASES)
def test_a_leader_tells_where_logs_part(pair: Pair, name: str) -> None:
    case = CASES[name]

    def script(session: Session) -> None:
        partition = Partition(pair, session, f"leads-{name}")
        partition.appended(case.leader)
        partition.led_by(OWN_ID, case.epoch)
        for version in (12, 15, 17):
            found = partition.fetch(version, case.epoch, *case.asked, replica=BROKER_ID)
            diverging = found["diverging_epoch"]
            assert found["error_code"] == ErrorCode.NONE
            assert (diverging["epoch"], diverging["end_offset"]) == (case.diverging or (-1, -1))
            assert bool(found["records"]) == (case.diverging is None)
        for current in (case.epoch - 1, case.epoch, case.epoch + 1):
            for asked in range(-1, case.epoch + 2):
                wanted = {"partition": 0, "current_leader_epoch": current, "leader_epoch": asked}
                topics = [{"topic": partition.name, "partitions": [wanted]}]
                message = {"replica_id": BROKER_ID, "topics": topics}
                session.ask(OFFSET_FOR_LEADER_EPOCH, 4, message, note=f"end of {asked} in {current}")

    pair.compare(script)


def followed(
    pair: Pair,
    name: str,
    case: Case,
    answers: dict[Question, Message],
    *,
    before: Callable[[Partition], None] = lambda _: None,
) -> None:
    """Have the broker follow a script with the case's log, to which it comes with its own; it ends with the same."""

    def script(session: Session) -> None:
        partition = Partition(pair, session, name)
        end = (case.epoch, len(case.leader), case.leader[-1])
        with ScriptedReplica() as other:
            other.end_offset = len(case.leader)
            partition.other_lives(other.address)
            try:
                own_epoch = max(case.follower)
                other.answers = {Question(own_epoch, 0, 0): {"records": records_of(case.follower)}}
                partition.led_by(BROKER_ID, own_epoch, other.address)
                filled = Question(own_epoch, len(case.follower), case.follower[-1])
                eventually(lambda: filled in other.asked, what="a follower with its own log")
                before(partition)
                other.answers = answers
                partition.led_by(BROKER_ID, case.epoch, other.address)
                eventually(lambda: Question(*end) in other.asked, what="a follower with the leader's log")
                asked = [question for question in other.asked if question.leader_epoch == case.epoch]
            finally:
                partition.other_lives(None)
            rest = Question(case.epoch, case.cut, case.leader[case.cut - 1] if case.cut else -1)
            expected = [Question(case.epoch, *case.asked), rest, Question(*end)]
            assert asked == list(dict.fromkeys(expected))
            session.note("asked", asked)
        partition.led_by(OWN_ID, case.epoch + 1)
        found = partition.fetch(17, case.epoch + 1, 0, -1, -1)
        assert bytes(found["records"]) == records_of(case.leader)

    pair.compare(script)


def told_where_it_parts(case: Case) -> dict[Question, Message]:
    """The leader's answers in a case."""
    asked = Question(case.epoch, *case.asked)
    rest = Question(case.epoch, case.cut, case.leader[case.cut - 1] if case.cut else -1)
    answers: dict[Question, Message] = {rest: {"records": records_of(case.leader, case.cut)}}
    if case.diverging is not None:
        epoch, end_offset = case.diverging
        answers[asked] = {"diverging_epoch": {"epoch": epoch, "end_offset": end_offset}}
    return answers


@pytest.mark.parametrize("name", CASES)
def test_a_follower_cuts_its_log_where_it_parts(pair: Pair, name: str) -> None:
    followed(pair, f"follows-{name}", CASES[name], told_where_it_parts(CASES[name]))


def test_a_follower_that_led_without_a_message_forgets_that_epoch(pair: Pair) -> None:
    """KAFKA-10706: elections without a message between leave epochs at the end of a log where nothing is to be cut."""
    case = Case((1, 1), (1, 1), 3, (2, 2), (1, 2), 2)
    followed(
        pair,
        "follows-after-an-empty-epoch",
        case,
        told_where_it_parts(case),
        before=lambda p: p.led_by(OWN_ID, 2),
    )


def test_a_follower_beyond_its_leaders_end_cuts_its_log_and_its_broker_goes_on(pair: Pair) -> None:
    """KAFKA-7414: the leader says that the offset is out of range, where unclean elections are off."""
    case = Case((1, 1, 1, 1), (1, 1), 2, (4, 1), None, 2)
    refused: Message = {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE, "high_watermark": -1}
    followed(pair, "follows-out-of-range", case, {Question(2, 4, 1): refused})
