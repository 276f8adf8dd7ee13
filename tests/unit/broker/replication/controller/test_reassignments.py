"""Reassignments as scripts: Kafka's phases, and what may come in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from controller_script import Script, of, state, topic

from headrace.broker.errors import ErrorCode
from headrace.broker.replication import events as ev
from headrace.broker.replication.model import LEADER_DURING_DELETE, ReplicaAssignment

KEY = ("t", 0)


def script(*replicas: int, leader: int = 1, live: tuple[int, ...] = (1, 2, 3, 4, 5, 6)) -> Script:
    replicas = replicas or (1, 2, 3)
    return Script(topic("t", replicas), states={KEY: state(leader, 5, *replicas)}, live=live)


def request(cluster: Script, *target: int, key: tuple[str, int] = KEY) -> ev.AnswerReassignments:
    """Ask for these replicas, or for none: to cancel."""
    commands = cluster.tell(ev.ReassignmentsRequested(targets={key: target or None}))
    (answer,) = of(ev.AnswerReassignments, commands)
    return answer


def assignment(cluster: Script) -> ReplicaAssignment:
    return cluster.topics["t"].partitions[0]


def told(cluster: Script) -> dict[int, list[tuple[int, tuple[int, ...], bool]]]:
    """By broker: leader, all replicas and whether the replica is new, for each LeaderAndIsr in order."""
    heard: dict[int, list[tuple[int, tuple[int, ...], bool]]] = {}
    for command in of(ev.SendLeaderAndIsr, cluster.said):
        for word in command.partitions:
            heard.setdefault(command.broker_id, []).append(
                (word.state.leader, word.assignment.replicas, word.is_new)
            )
    return heard


def deleted(cluster: Script) -> dict[int, tuple[tuple[str, int, int], ...]]:
    stops = of(ev.SendStopReplica, cluster.said)
    assert all(stop.delete for stop in stops)
    return {stop.broker_id: stop.partitions for stop in stops}


def moving(cluster: Script) -> dict[tuple[str, int], ReplicaAssignment]:
    commands = cluster.tell(ev.ReassignmentsAsked(partitions=None))
    (answer,) = of(ev.AnswerReassignmentsAsked, commands)
    return dict(answer.assignments)


def test_new_replicas_are_named_in_the_znode_before_anybody_hears_of_them() -> None:
    cluster = script()
    assert request(cluster, 4, 5, 6).refusals == {}
    kinds = [type(c) for c in cluster.said]
    assert kinds.index(ev.WriteAssignments) < kinds.index(ev.WriteStates) < kinds.index(ev.SendLeaderAndIsr)
    full = (4, 5, 6, 1, 2, 3)
    assert assignment(cluster) == ReplicaAssignment(replicas=full, adding=(4, 5, 6), removing=(1, 2, 3))
    assert told(cluster) == {b: [(1, full, b in (4, 5, 6))] for b in full}
    assert (cluster.states[KEY].leader_epoch, cluster.states[KEY].isr) == (6, (1, 2, 3))
    assert deleted(cluster) == {}
    assert moving(cluster) == {KEY: assignment(cluster)}


def test_a_move_ends_once_all_wanted_replicas_are_in_sync() -> None:
    cluster = script()
    request(cluster, 4, 5, 6)
    cluster.in_sync(KEY, 1, 2, 3, 4, 5)
    assert of(ev.WriteStates, cluster.said) == []
    cluster.in_sync(KEY, 1, 2, 3, 4, 5, 6)
    end = cluster.states[KEY]
    assert (end.leader, end.leader_epoch, end.isr) == (4, 7, (4, 5, 6))
    assert told(cluster) == {b: [(4, (4, 5, 6), False)] for b in (4, 5, 6)}
    assert deleted(cluster) == dict.fromkeys((1, 2, 3), (("t", 0, 7),))
    assert assignment(cluster) == ReplicaAssignment(replicas=(4, 5, 6))
    kinds = [type(c) for c in cluster.said]
    assert kinds.index(ev.WriteStates) < kinds.index(ev.SendStopReplica) < kinds.index(ev.WriteAssignments)
    (word,) = of(ev.SendUpdateMetadata, cluster.said)[-1].partitions
    assert word.assignment.replicas == (4, 5, 6)
    assert moving(cluster) == {}


def test_a_leader_that_stays_a_replica_goes_on_leading() -> None:
    cluster = script()
    request(cluster, 4, 1)
    cluster.in_sync(KEY, 1, 2, 3, 4)
    assert (cluster.states[KEY].leader, cluster.states[KEY].isr) == (1, (1, 4))
    assert deleted(cluster).keys() == {2, 3}


def test_replicas_that_only_go_go_at_once_and_a_new_order_is_taken_at_once() -> None:
    cluster = script()
    request(cluster, 2, 1)
    assert assignment(cluster) == ReplicaAssignment(replicas=(2, 1))
    assert (cluster.states[KEY].leader, cluster.states[KEY].isr) == (1, (1, 2))
    assert deleted(cluster).keys() == {3}
    request(cluster, 1, 2)
    assert assignment(cluster) == ReplicaAssignment(replicas=(1, 2))
    assert told(cluster) == {1: [(1, (1, 2), False)], 2: [(1, (1, 2), False)]}
    assert deleted(cluster) == {}


def test_the_same_replicas_again_change_nothing() -> None:
    cluster = script()
    assert request(cluster, 1, 2, 3).refusals == {}
    assert len(cluster.said) == 1


def test_a_cancelled_move_gives_back_the_first_replicas_and_deletes_the_new_ones() -> None:
    cluster = script()
    request(cluster, 4, 5, 2)
    cluster.in_sync(KEY, 1, 2, 3, 4)
    assert request(cluster).refusals == {}
    assert assignment(cluster) == ReplicaAssignment(replicas=(2, 1, 3))
    assert (cluster.states[KEY].leader, cluster.states[KEY].isr) == (1, (1, 2, 3))
    assert deleted(cluster).keys() == {4, 5}
    assert moving(cluster) == {}
    assert request(cluster).refusals[KEY].error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_cancelled_move_waits_for_no_replica_that_was_not_in_sync_before() -> None:
    cluster = script()
    cluster.in_sync(KEY, 1, 2)
    request(cluster, 4)
    assert request(cluster).refusals == {}
    assert assignment(cluster) == ReplicaAssignment(replicas=(1, 2, 3))
    assert cluster.states[KEY].isr == (1, 2)
    assert deleted(cluster).keys() == {4}
    assert moving(cluster) == {}


def test_a_later_request_takes_the_place_of_an_earlier_one() -> None:
    cluster = script()
    request(cluster, 4, 5)
    cluster.in_sync(KEY, 1, 2, 3, 4)
    request(cluster, 5, 6)
    assert assignment(cluster) == ReplicaAssignment(
        replicas=(5, 6, 1, 2, 3), adding=(5, 6), removing=(1, 2, 3)
    )
    assert cluster.states[KEY].isr == (1, 2, 3)
    assert deleted(cluster).keys() == {4}
    cluster.in_sync(KEY, 1, 2, 3, 5, 6)
    assert assignment(cluster) == ReplicaAssignment(replicas=(5, 6))


def test_a_move_is_not_cancelled_that_would_delete_all_that_is_in_sync() -> None:
    cluster = script(1)
    request(cluster, 4, 5)
    cluster.in_sync(KEY, 1, 4)
    cluster.live_are(4, 5)
    assert (cluster.states[KEY].leader, cluster.states[KEY].isr) == (4, (4,))
    assert request(cluster).refusals[KEY].error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.said == of(ev.AnswerReassignments, cluster.said)
    assert moving(cluster).keys() == {KEY}


def test_a_leader_among_those_that_are_dropped_is_followed_by_one_in_sync() -> None:
    cluster = script()
    request(cluster, 4, 5)
    cluster.in_sync(KEY, 1, 2, 3, 4)
    cluster.live_are(2, 3, 4, 5, 6)
    cluster.live_are(3, 4, 5, 6)
    cluster.in_sync(KEY, 3, 4)
    cluster.states[KEY] = replace(cluster.states[KEY], leader=4)
    cluster.tell(ev.IsrChanged(states={KEY: cluster.states[KEY]}))
    request(cluster, 5, 6)
    assert (cluster.states[KEY].leader, cluster.states[KEY].isr) == (3, (3,))
    assert deleted(cluster).keys() == {4}


def test_the_last_in_sync_write_lost_to_a_leader_is_decided_anew() -> None:
    cluster = script()
    request(cluster, 4, 2)
    full = cluster.states[KEY]
    seen = replace(full, isr=(1, 2, 3, 4), zk_version=full.zk_version + 1)
    cluster.states[KEY] = replace(full, isr=(1, 2, 3), zk_version=full.zk_version + 2)
    cluster.tell(ev.IsrChanged(states={KEY: seen}))
    assert assignment(cluster).is_moving
    assert cluster.controller.cluster.topics["t"].partitions[0].is_moving
    cluster.in_sync(KEY, 1, 2, 3, 4)
    assert assignment(cluster) == ReplicaAssignment(replicas=(4, 2))


def test_the_next_controller_goes_on_wherever_the_last_one_was() -> None:
    cluster = script()
    request(cluster, 4, 5)
    cluster.elect(8)
    full = (4, 5, 1, 2, 3)
    assert told(cluster)[4][-1] == (1, full, True)
    assert cluster.states[KEY].leader_epoch == 7
    cluster.states[KEY] = replace(cluster.states[KEY], isr=(1, 4, 5), zk_version=20)
    cluster.elect(9)
    assert assignment(cluster) == ReplicaAssignment(replicas=(4, 5))
    assert deleted(cluster).keys() == {1, 2, 3}


def test_a_broker_that_is_away_is_waited_for_and_told_when_it_comes() -> None:
    cluster = script()
    request(cluster, 4, 5)
    cluster.live_are(1, 2, 3, 5)
    cluster.in_sync(KEY, 1, 2, 3, 5)
    assert moving(cluster).keys() == {KEY}
    cluster.live_are(1, 2, 3, 4, 5)
    assert told(cluster)[4][-1][1:] == ((4, 5, 1, 2, 3), True)
    cluster.in_sync(KEY, 1, 2, 3, 4, 5)
    assert moving(cluster) == {}


def test_nobody_is_left_out_while_no_wanted_replica_can_lead() -> None:
    cluster = script()
    request(cluster, 4)
    cluster.tell(ev.ShutdownRequested(broker_id=4))
    cluster.in_sync(KEY, 1, 2, 3, 4)
    assert of(ev.SendStopReplica, cluster.said) == []
    assert moving(cluster).keys() == {KEY}


@pytest.mark.parametrize(
    ("key", "target", "error"),
    [
        (KEY, (9, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (KEY, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (KEY, (-1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("t", 7), (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("u", 0), (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("u", 0), (9,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (("u", 0), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (KEY, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (KEY, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    key: tuple[str, int], target: tuple[int, ...] | None, error: ErrorCode
) -> None:
    cluster = script()
    (answer,) = cluster.tell(ev.ReassignmentsRequested(targets={key: target}))
    assert isinstance(answer, ev.AnswerReassignments)
    assert answer.refusals[key].error is error


def test_a_bad_partition_keeps_no_other_from_moving() -> None:
    cluster = Script(topic("t", (1,), (2,)), states={KEY: state(1, 0, 1), ("t", 1): state(2, 0, 2)})
    commands = cluster.tell(ev.ReassignmentsRequested(targets={KEY: (77,), ("t", 1): (3,)}))
    (answer,) = of(ev.AnswerReassignments, commands)
    assert answer.refusals.keys() == {KEY}
    assert moving(cluster).keys() == {("t", 1)}


def test_a_topic_whose_znode_is_gone_meanwhile_is_unknown() -> None:
    cluster = script()
    cluster.topics.clear()
    assert request(cluster, 4).refusals[KEY].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert moving(cluster) == {}


def test_a_deletion_waits_for_the_topics_moves_and_lets_no_other_begin() -> None:
    cluster = script()
    request(cluster, 4, 5)
    assert cluster.tell(ev.DeletionsRequested(topics=frozenset({"t"}))) == []
    assert request(cluster, 6).refusals[KEY].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.in_sync(KEY, 1, 2, 3, 4, 5)
    words = [w for c in of(ev.SendUpdateMetadata, cluster.said) for w in c.partitions]
    assert words[-1].state.leader == LEADER_DURING_DELETE
    stops = of(ev.SendStopReplica, cluster.said)
    assert [(s.broker_id, s.partitions[0][2]) for s in stops] == [(1, 7), (2, 7), (3, 7), (4, -2), (5, -2)]


def test_a_deletion_waits_for_moves_that_an_earlier_controller_began() -> None:
    cluster = script()
    request(cluster, 4, 5)
    cluster.elect(8, deletions=["t"])
    assert of(ev.SendStopReplica, cluster.said) == []
    cluster.in_sync(KEY, 1, 2, 3, 4, 5)
    assert [s.broker_id for s in of(ev.SendStopReplica, cluster.said)] == [1, 2, 3, 4, 5]


def test_wishes_in_zookeeper_are_begun_and_taken_out_when_they_are_done_or_cannot_be() -> None:
    cluster = Script(topic("t", (1,), (2,)), states={KEY: state(1, 0, 1), ("t", 1): state(2, 0, 2)})
    targets = {KEY: (3,), ("t", 1): (2,), ("t", 9): (1,), ("u", 0): (1,), ("v", 0): ()}
    commands = cluster.tell(ev.ReassignmentsWished(targets=targets))
    (forgotten,) = of(ev.ForgetReassignmentWishes, commands)
    assert forgotten.partitions == targets.keys() - {KEY}
    assert moving(cluster).keys() == {KEY}
    cluster.in_sync(KEY, 1, 3)
    (forgotten,) = of(ev.ForgetReassignmentWishes, cluster.said)
    assert forgotten.partitions == {KEY}


def test_a_wish_in_zookeeper_may_name_brokers_that_are_away() -> None:
    cluster = script(live=(1, 2, 3))
    cluster.tell(ev.ReassignmentsWished(targets={KEY: (4, 1)}))
    assert moving(cluster).keys() == {KEY}


def test_a_wish_for_nothing_is_removed() -> None:
    cluster = script()
    assert cluster.tell(ev.ReassignmentsWished(targets={})) == [
        ev.ForgetReassignmentWishes(partitions=frozenset())
    ]


def test_a_clients_request_goes_before_a_wish_in_zookeeper() -> None:
    cluster = script()
    cluster.tell(ev.ReassignmentsWished(targets={KEY: (4,)}))
    request(cluster, 5)
    assert of(ev.ForgetReassignmentWishes, cluster.said) == [
        ev.ForgetReassignmentWishes(partitions=frozenset({KEY}))
    ]
    assert assignment(cluster).target == (5,)


def test_partitions_added_by_others_are_led_and_those_on_the_move_stay_so() -> None:
    cluster = script()
    request(cluster, 4, 5)
    grown = replace(
        cluster.topics["t"],
        partitions={
            0: ReplicaAssignment(replicas=(1, 2, 3)),
            1: ReplicaAssignment(replicas=(2,)),
        },
    )
    cluster.tell(ev.TopicsChanged(topics={"t": grown}))
    assert cluster.states["t", 1].leader == 2
    assert moving(cluster)[KEY].adding == (4, 5)


def test_a_partition_that_never_had_a_leader_gets_one_where_it_moves_to() -> None:
    cluster = Script(topic("t", (9,)), states={}, live=(1, 2))
    request(cluster, 2)
    assert cluster.states[KEY].leader == 2
    assert assignment(cluster) == ReplicaAssignment(replicas=(2,))


def test_many_moves_cost_one_write_each_way() -> None:
    count = 500
    states = {("t", p): state(1, 0, 1) for p in range(count)}
    cluster = Script(topic("t", *[(1,)] * count), states=states)
    cluster.tell(ev.ReassignmentsRequested(targets={("t", p): (2,) for p in range(count)}))
    assert len(of(ev.WriteStates, cluster.said)) == len(of(ev.WriteAssignments, cluster.said)) == 1
    caught_up = {k: replace(s, isr=(1, 2), zk_version=s.zk_version + 1) for k, s in cluster.states.items()}
    cluster.states = dict(caught_up)
    cluster.tell(ev.IsrChanged(states=caught_up))
    assert len(of(ev.WriteStates, cluster.said)) == len(of(ev.WriteAssignments, cluster.said)) == 1
    assert moving(cluster) == {}
