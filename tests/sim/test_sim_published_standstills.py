"""Published schedules in which a partition stood still: nobody cut, nobody joined, or a broker gave up altogether.

KAFKA-10706 (epochs without messages at the end of a log), KAFKA-14154 (a leader that knows more than the controller that it
asks), KAFKA-12686 (an answer that the controller's word overtook), KAFKA-9491 (a watermark below the log's begin), KAFKA-7414 (a
follower beyond its leader's end).
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from controller_script import Script, broker, of, state, topic
from log_kit import NOW_MS, batch, open_log
from published_logs import follow, lead, log
from replica_kit import ScriptedHost, told

from headrace.broker.errors import ErrorCode
from headrace.broker.log.truncation import start_at
from headrace.broker.replication import events as ev
from headrace.broker.replication.events import IsrAnswer
from headrace.broker.replication.follower import AskOffsets, Follower, TruncateTo
from headrace.broker.replication.isr_proposals import IsrProposals, ProposalOf
from headrace.broker.replication.leader import IsrProposal, Leadership
from headrace.broker.replication.model import PartitionState
from headrace.broker.replication.partition import Partition
from headrace.broker.wire.client.replica_fetch import FetchedPartition

KEY = ("t", 0)
TOPIC_ID = UUID(int=1)


class Leader:
    """Broker `number`, which leads partition 0 of a topic on brokers 1 and 2, and asks controllers about it."""

    def __init__(self, number: int, known: PartitionState) -> None:
        self.number = number
        self.leadership = Leadership(
            number, known, (1, 2), end_offset=5, lag_ms_max=1000, is_alive=lambda _: True, now_ms=0
        )
        self.proposals = IsrProposals(lambda proposed: self.leadership.proposed is proposed.proposal)

    def sees(self, follower: int) -> None:
        """That one fetches, having everything: it shall join."""
        self.leadership.fetched(follower, 5, log_start_offset=0, broker_epoch=-1, end_offset=5, now_ms=1)
        proposal = self.leadership.joining(follower, high_watermark=5)
        if proposal is not None:
            self.proposals.propose(ProposalOf(*KEY, TOPIC_ID, proposal))

    def hears(self, known: PartitionState) -> None:
        """LeaderAndIsr."""
        self.leadership.told(known, (1, 2), end_offset=5, now_ms=2)

    def asks(self, controller: Script) -> dict[tuple[str, int], IsrAnswer]:
        """Send what is to be sent; the answers are on their way."""
        proposed = tuple(map(_wish, self.proposals.next_request()))
        request = ev.IsrProposed(broker_id=self.number, broker_epoch=broker(1).epoch, proposals=proposed)
        (answer,) = of(ev.AnswerIsrProposal, controller.tell(request))
        return {(p.topic, p.partition): told for p, told in zip(proposed, answer.answers, strict=True)}  # type: ignore[misc]

    def is_answered(self, answers: dict[tuple[str, int], IsrAnswer]) -> None:
        """The answers arrive."""
        for sent, answer in self.proposals.answered(answers):
            self.leadership.answered(sent.proposal, answer)


def _wish(sent: ProposalOf) -> ev.ProposedIsr:
    proposal: IsrProposal = sent.proposal
    return ev.ProposedIsr(
        topic=sent.topic,
        partition=sent.partition,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        isr=proposal.isr,
        broker_epochs=proposal.broker_epochs,
        leader_recovery_state=0,
    )


def test_kafka_10706_epochs_without_a_message_are_forgotten_where_nothing_is_to_be_cut() -> None:
    """A led in epochs 1 and 3 and appended nothing, B in 2 and leads in 4: A asks with an epoch that B never had."""
    a, b = log(0, 0), log(0, 0)
    lead(a, 1)
    lead(b, 2)
    lead(a, 3)
    lead(b, 4)
    b.append([b"new"], 4)
    assert follow(a, b, 4) == [2]
    assert a.entries == b.entries
    assert a.latest_epoch == 4


def test_kafka_14154_who_knows_more_than_a_controller_of_the_past_asks_the_next_one() -> None:
    """Broker 1, controller and leader, lost its session; 2 is both now, and sends its first wish to 1, which does not know."""
    past = Script(topic("t", (1, 2)), states={KEY: state(1, 10, 1, 2)}, live=(1, 2))
    present = Script(topic("t", (1, 2)), states={KEY: state(1, 10, 1, 2)}, live=(1, 2), epoch=8)
    present.live_are(2)
    leader = Leader(2, present.states[KEY])
    assert list(leader.leadership.isr) == [2]
    present.live_are(1, 2)
    leader.hears(present.states[KEY])
    leader.sees(1)
    answers = leader.asks(past)
    assert answers == {KEY: ErrorCode.NOT_CONTROLLER}
    leader.is_answered(answers)
    leader.is_answered(leader.asks(present))
    assert leader.leadership.isr == present.states[KEY].isr == (2, 1)
    assert leader.leadership.proposed is None


def test_kafka_12686_an_answer_that_was_overtaken_neither_counts_nor_holds_up_the_next_wish() -> None:
    """The controller's word came between a wish and its answer, which says what was before; then the follower asks again."""
    cluster = Script(topic("t", (1, 2)), states={KEY: state(1, 5, 1)}, live=(1, 2))
    leader = Leader(1, cluster.states[KEY])
    leader.sees(2)
    late = leader.asks(cluster)
    assert cluster.states[KEY].isr == (1, 2)
    cluster.live_are(1)
    cluster.live_are(1, 2)
    leader.hears(cluster.states[KEY])
    assert leader.leadership.isr == (1,)
    leader.sees(2)
    assert leader.proposals.next_request() == [], "one request at a time"
    leader.is_answered(late)
    assert leader.leadership.isr == (1,), "what was answered is over"
    leader.is_answered(leader.asks(cluster))
    assert leader.leadership.isr == cluster.states[KEY].isr == (1, 2)


def test_kafka_9491_a_leader_that_never_heard_a_watermark_has_one_within_its_log(tmp_path: Path) -> None:
    """A replica was added where the leader's log begins at 100, and is elected before it heard what is committed."""
    own, _ = open_log(tmp_path)
    replica = Partition(ScriptedHost(broker_id=2), "events", 0, TOPIC_ID, own)
    replica.follow(told(1, 7, isr=(1,), replicas=(1, 2)))
    start_at(own, 100)
    replica.append_as_follower(batch(3, at=100), leader_epoch=7, now_ms=NOW_MS)
    replica.leader_said(0, 100)
    replica.follow(told(2, 8, isr=(2, 3), replicas=(2, 3)))
    assert (own.log_start_offset, own.high_watermark, own.log_end_offset) == (100, 100, 103)
    replica.follower_fetched(3, 100)
    assert own.read(100, size_max=1000, upper_offset=own.log_end_offset).size > 0
    replica.follower_fetched(3, 103)
    assert own.high_watermark == 103


def test_kafka_7414_a_follower_beyond_its_leaders_end_cuts_its_log_and_follows_on() -> None:
    """Its leader cannot tell where logs part, only that there is nothing at that offset."""
    own, leader = log(0, 0, 0, 0), log(0, 0)
    follower = Follower("t", 0, own, leader_epoch=1, backoff_ms=1)
    follower.asked = follower.question(0)
    assert follower.asked is not None
    refused = FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, None, None)
    assert isinstance(follower.answered(refused, 0), AskOffsets)
    match follower.offsets_told(leader.log_start_offset, leader.log_end_offset, 0):
        case TruncateTo(offset=offset):
            own.truncate_to(offset)
            follower.truncated()
    assert own.entries == leader.entries
    lead(leader, 1)
    leader.append([b"new"], 1)
    assert follow(own, leader, 1) == []
    assert own.entries == leader.entries
