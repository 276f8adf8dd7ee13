"""Other leaders: wished by clients, restored by the controller, unclean ones where that is allowed."""

from __future__ import annotations

from controller_script import Script, of, state, topic

from headrace.broker.errors import ErrorCode
from headrace.broker.replication import events as ev
from headrace.broker.replication.model import RECOVERED, RECOVERING

KEY = ("t", 0)


def ask(cluster: Script, *keys: tuple[str, int], unclean: bool = False) -> ev.AnswerLeaders:
    commands = cluster.tell(ev.LeadersRequested(partitions=frozenset(keys), unclean=unclean))
    (answer,) = of(ev.AnswerLeaders, commands)
    assert commands[-1] == answer, "it is answered when it is done"
    return answer


def errors(answer: ev.AnswerLeaders) -> dict[tuple[str, int], ErrorCode]:
    return {key: refusal.error for key, refusal in answer.refusals.items()}


def test_preferred_leaders_are_elected_for_a_client_and_the_others_told_why_not() -> None:
    cluster = Script(
        topic("t", (1, 2), (1, 2), (3, 2), (1, 2)),
        topic("gone", (1, 2), topic_id=2),
        states={
            ("t", 0): state(2, 5, 1, 2),
            ("t", 1): state(1, 5, 1, 2),
            ("t", 2): state(2, 5, 2),
            ("t", 3): state(2, 5, 2),
            ("gone", 0): state(2, 5, 1, 2),
        },
        live=(1, 2),
        deletions=["gone"],
    )
    answer = ask(cluster, *(("t", p) for p in range(4)), ("t", 9), ("nowhere", 0), ("gone", 0))
    assert answer.leaders == {KEY: 1}
    assert errors(answer) == {
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("t", 3): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("gone", 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert (cluster.states[KEY].leader, cluster.states[KEY].leader_epoch) == (1, 6)
    assert cluster.states[KEY].leader_recovery_state == RECOVERED


def test_a_client_may_have_an_unclean_leader_where_nobody_leads() -> None:
    cluster = Script(
        topic("t", (1, 2), (3, 2), (1, 4)),
        states={KEY: state(1, 5, 1), ("t", 1): state(2, 5, 2), ("t", 2): state(1, 5, 1)},
        live=(2,),
    )
    assert cluster.states[KEY].leader == -1
    answer = ask(cluster, KEY, ("t", 1), ("t", 2), unclean=True)
    assert answer.leaders == {KEY: 2}
    assert errors(answer) == {
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 2): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    assert (cluster.states[KEY].isr, cluster.states[KEY].leader_recovery_state) == ((2,), RECOVERING)


def test_a_wish_of_a_client_ends_no_wish_in_zookeeper() -> None:
    cluster = Script(topic("t", (1, 2)), states={KEY: state(2, 5, 1, 2)})
    ask(cluster, KEY)
    assert of(ev.EndPreferredElection, cluster.said) == []
    cluster.tell(ev.PreferredLeadersRequested(partitions=frozenset({KEY})))
    assert of(ev.EndPreferredElection, cluster.said) == [ev.EndPreferredElection()]
    assert of(ev.AnswerLeaders, cluster.said) == []


def test_a_broker_that_leads_too_few_of_its_partitions_gets_them_back() -> None:
    replicas = [(1, 2)] * 9 + [(2, 1)] * 10
    states = {("t", p): state(2, 5, 1, 2) for p in range(19)} | {
        ("t", p): state(1, 5, 1, 2) for p in range(8)
    }
    cluster = Script(topic("t", *replicas), states=states)
    cluster.tell(ev.BalanceDue())
    assert {k for c in of(ev.WriteStates, cluster.said) for w in c.writes if (k := w.partition) >= 0} == {8}
    assert of(ev.EndPreferredElection, cluster.said) == []
    cluster.tell(ev.BalanceDue())
    assert cluster.said == []


def test_one_partition_in_ten_may_have_strayed() -> None:
    states = {("t", p): state(1, 5, 1, 2) for p in range(9)} | {("t", 9): state(2, 5, 1, 2)}
    cluster = Script(topic("t", *[(1, 2)] * 10), states=states)
    assert cluster.tell(ev.BalanceDue()) == []


def test_the_balance_waits_for_replicas_that_are_not_in_sync() -> None:
    cluster = Script(topic("t", (1, 2)), states={KEY: state(2, 5, 2)})
    assert cluster.tell(ev.BalanceDue()) == []
    cluster.in_sync(KEY, 1, 2)
    cluster.tell(ev.BalanceDue())
    assert cluster.states[KEY].leader == 1


def test_unclean_elections_run_as_soon_as_they_are_allowed_where_they_are() -> None:
    cluster = Script(
        topic("t", (1, 2)),
        topic("u", (1, 2), topic_id=2),
        states={KEY: state(1, 5, 1), ("u", 0): state(1, 5, 1)},
        live=(2,),
    )
    cluster.unclean = True
    cluster.tell(ev.UncleanElectionsAllowed(topics=frozenset({"t"})))
    assert {k: s.leader for k, s in cluster.states.items()} == {KEY: 2, ("u", 0): -1}
    cluster.tell(ev.UncleanElectionsAllowed(topics=None))
    assert {k: s.leader for k, s in cluster.states.items()} == {KEY: 2, ("u", 0): 2}
    assert cluster.states[KEY].leader_recovery_state == RECOVERING
