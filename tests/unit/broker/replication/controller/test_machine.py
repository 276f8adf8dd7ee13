"""The controller as scripts: an event in, the expected commands out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from controller_script import broker, brokers, of, state, topic

from headrace.broker.replication import events as ev
from headrace.broker.replication import requests
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import (
    LEADER_DURING_DELETE,
    NO_ZXID,
    RECOVERED,
    RECOVERING,
    Broker,
    PartitionState,
    TopicAssignment,
)
from headrace.broker.replication.versions import versions_of
from headrace.broker.wire.partitions import PartitionKey


def elected(
    *,
    live: Sequence[int] = (1, 2),
    topics: Sequence[TopicAssignment] = (),
    states: Mapping[PartitionKey, PartitionState] | None = None,
    deletions: Iterable[str] = (),
    controller: Controller | None = None,
) -> tuple[Controller, list[ev.Command]]:
    controller = controller or Controller()
    commands = controller.handle(
        ev.Elected(
            epoch=7,
            brokers=brokers(*live),
            topics={t.topic: t for t in topics},
            states=states or {},
            deletions=frozenset(deletions),
        )
    )
    return controller, commands


def writes(commands: Sequence[ev.Command]) -> dict[PartitionKey, ev.StateWrite]:
    return {(w.topic, w.partition): w for c in of(ev.WriteStates, commands) for w in c.writes}


def write_all(controller: Controller, commands: Sequence[ev.Command], version: int = 1) -> list[ev.Command]:
    """Perform the writes and hand the outcome back; answers what follows."""
    following = []
    for command in of(ev.WriteStates, commands):
        written = {(w.topic, w.partition): w.state for w in command.writes}
        following += controller.handle(ev.StatesWritten(written=written))
    return following


def test_a_new_controller_first_tells_every_broker_who_is_alive() -> None:
    _, commands = elected(live=(1, 2))
    told = of(ev.SendUpdateMetadata, commands)
    assert told == commands
    assert [(c.broker_id, [b.broker_id for b in c.brokers], c.partitions) for c in told] == [
        (1, [1, 2], ()),
        (2, [1, 2], ()),
    ]


def test_a_new_topic_gets_leaders_in_epoch_0_and_brokers_hear_of_it_after_the_write() -> None:
    controller, _ = elected(live=(1, 2))
    commands = controller.handle(ev.TopicsChanged(topics={"t": topic("t", (1,), (2,))}))
    assert {
        k: (w.state.leader, w.state.leader_epoch, w.state.isr, w.create) for k, w in writes(commands).items()
    } == {
        ("t", 0): (1, 0, (1,), True),
        ("t", 1): (2, 0, (2,), True),
    }
    assert len(commands) == 1, "nothing is sent before the write"
    following = write_all(controller, commands)
    told = {
        c.broker_id: [(w.partition, w.is_new) for w in c.partitions]
        for c in of(ev.SendLeaderAndIsr, following)
    }
    assert told == {1: [(0, True)], 2: [(1, True)]}
    assert [len(c.partitions) for c in of(ev.SendUpdateMetadata, following)] == [2, 2]


def test_a_partition_whose_only_replica_is_down_waits_and_is_led_when_it_comes() -> None:
    controller, _ = elected(live=(1,))
    assert controller.handle(ev.TopicsChanged(topics={"t": topic("t", (2,))})) == []
    commands = controller.handle(ev.BrokersChanged(brokers=brokers(1, 2)))
    assert writes(commands)["t", 0].state.leader == 2


def test_a_lost_broker_leaves_its_partition_without_leader_isr_kept_epoch_grown() -> None:
    controller, _ = elected(
        topics=[topic("t", (1,), (2,))], states={("t", 0): state(1, 4, 1), ("t", 1): state(2, 3, 2)}
    )
    commands = controller.handle(ev.BrokersChanged(brokers=brokers(1)))
    assert of(ev.ForgetBroker, commands) == [ev.ForgetBroker(broker_id=2)]
    assert {k: (w.state.leader, w.state.leader_epoch, w.state.isr) for k, w in writes(commands).items()} == {
        ("t", 1): (-1, 4, (2,))
    }
    following = write_all(controller, commands)
    (update,) = of(ev.SendUpdateMetadata, following)
    assert [(w.state.leader, w.offline) for w in update.partitions] == [(-1, (2,))]


def test_a_returning_broker_leads_again_in_a_new_epoch() -> None:
    controller, _ = elected(live=(1,), topics=[topic("t", (2,))], states={("t", 0): state(-1, 5, 2)})
    commands = controller.handle(ev.BrokersChanged(brokers=brokers(1, 2)))
    write = writes(commands)["t", 0]
    assert (write.state.leader, write.state.leader_epoch, write.state.isr) == (2, 6, (2,))
    following = write_all(controller, commands)
    assert [c.broker_id for c in of(ev.SendLeaderAndIsr, following)] == [2]


def test_a_starting_broker_hears_of_everything_the_others_only_of_it() -> None:
    states = {("t", 0): state(1, 5, 1)}
    controller, _ = elected(live=(1,), topics=[topic("t", (1,))], states=states)
    commands = controller.handle(ev.BrokersChanged(brokers=brokers(1, 2)))
    assert [(c.broker_id, len(c.partitions)) for c in of(ev.SendUpdateMetadata, commands)] == [(1, 0), (2, 1)]


def test_a_broker_that_was_away_between_two_looks_gets_a_new_leader_epoch() -> None:
    controller, _ = elected(live=(1,), topics=[topic("t", (1,))], states={("t", 0): state(1, 5, 1)})
    commands = controller.handle(ev.BrokersChanged(brokers={1: broker(1, epoch=99)}))
    assert of(ev.ForgetBroker, commands) == [ev.ForgetBroker(broker_id=1)]
    assert writes(commands)["t", 0].state.leader_epoch == 6
    assert {c.broker_epoch for c in of(ev.SendUpdateMetadata, commands)} == {99}


def test_a_replicated_partition_moves_to_a_live_in_sync_replica() -> None:
    controller, _ = elected(topics=[topic("t", (1, 2))], states={("t", 0): state(1, 5, 1, 2)})
    commands = controller.handle(ev.BrokersChanged(brokers=brokers(2)))
    write = writes(commands)["t", 0]
    assert (write.state.leader, write.state.isr, write.state.leader_epoch) == (2, (2,), 6)


def test_an_unclean_leader_is_recovering_and_its_successors_with_it_until_it_says_otherwise() -> None:
    controller, _ = elected(
        live=(1, 2),
        topics=[topic("t", (1, 2))],
        states={("t", 0): state(1, 5, 1)},
        controller=Controller(unclean=lambda topic: True),
    )
    commands = controller.handle(ev.BrokersChanged(brokers=brokers(2)))
    write = writes(commands)["t", 0].state
    assert (write.leader, write.isr, write.leader_recovery_state) == (2, (2,), RECOVERING)
    (told,) = of(ev.SendLeaderAndIsr, write_all(controller, commands))
    maker = requests.Maker(
        controller_id=1, controller_epoch=7, listener="PLAINTEXT", versions=versions_of("3.9")
    )
    request = maker.leader_and_isr(told)
    assert request["topic_states"][0]["partition_states"][0]["leader_recovery_state"] == RECOVERING
    commands = controller.handle(ev.BrokersChanged(brokers={2: broker(2, epoch=99)}))
    write = writes(commands)["t", 0].state
    assert (write.leader, write.leader_epoch, write.leader_recovery_state) == (2, 7, RECOVERING)


def test_no_recovery_is_noted_where_brokers_do_not_know_of_it() -> None:
    controller, _ = elected(
        topics=[topic("t", (1, 2))],
        states={("t", 0): state(1, 5, 1)},
        controller=Controller(unclean=lambda topic: True, notes_recovery=False),
    )
    commands = controller.handle(ev.BrokersChanged(brokers=brokers(2)))
    write = writes(commands)["t", 0].state
    assert (write.leader, write.leader_recovery_state) == (2, RECOVERED)


def test_a_leader_in_sync_has_nothing_to_recover_from() -> None:
    controller, _ = elected(
        topics=[topic("t", (1, 2))],
        states={("t", 0): state(1, 5, 1, 2)},
        controller=Controller(unclean=lambda topic: True),
    )
    commands = controller.handle(ev.BrokersChanged(brokers=brokers(2)))
    assert writes(commands)["t", 0].state.leader_recovery_state == RECOVERED


def test_a_lost_follower_leaves_the_isr_and_the_leader_stays() -> None:
    controller, _ = elected(topics=[topic("t", (1, 2))], states={("t", 0): state(1, 5, 1, 2)})
    commands = controller.handle(ev.BrokersChanged(brokers=brokers(1)))
    write = writes(commands)["t", 0]
    assert (write.state.leader, write.state.isr, write.state.leader_epoch) == (1, (1,), 6)


def registered(**epochs: int) -> dict[int, Broker]:
    return {int(name[1:]): broker(int(name[1:]), epoch) for name, epoch in epochs.items()}


def first_look(
    brokers: Mapping[int, Broker],
    leader: int,
    *isr: int,
    written_zxid: int = 20,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> ev.StateWrite | None:
    """What a new controller writes for a partition whose state was written by that transaction."""
    found = replace(state(leader, 3, *isr), written_zxid=written_zxid)
    commands = Controller().handle(
        ev.Elected(epoch=7, brokers=brokers, topics={"t": topic("t", replicas)}, states={("t", 0): found})
    )
    return writes(commands).get(("t", 0))


def test_who_registered_after_a_state_was_written_leads_nothing_by_it_and_is_out_of_sync() -> None:
    """It may have lost its log's end while there was no controller to see that it was away."""
    write = first_look(registered(b1=21, b2=10, b3=11), 1, 1, 2, 3)
    assert write is not None
    assert (write.state.leader, write.state.leader_epoch, write.state.isr) == (2, 4, (2, 3))
    write = first_look(registered(b1=10, b2=21, b3=11), 1, 1, 2, 3)
    assert write is not None
    assert (write.state.leader, write.state.leader_epoch, write.state.isr) == (1, 4, (1, 3))


def test_a_leader_that_registered_after_its_state_was_written_leads_in_another_epoch_even_if_all_did() -> (
    None
):
    """It may have lost batches of its epoch that followers have: no other ones may get their offsets in that epoch."""
    write = first_look(registered(b1=21, b2=22, b3=10), 1, 1, 2)
    assert write is not None
    assert (write.state.leader, write.state.leader_epoch, write.state.isr) == (1, 4, (1, 2))


def test_a_state_stands_for_single_replicas_and_when_nobody_knows() -> None:
    assert first_look(registered(b1=21), 1, 1, replicas=(1,)) is None
    assert first_look(registered(b1=21, b2=10, b3=10), 1, 1, 2, 3, written_zxid=NO_ZXID) is None


def test_a_failed_write_takes_what_the_znode_holds_and_decides_again() -> None:
    controller, _ = elected(topics=[topic("t", (1, 2))], states={("t", 0): state(1, 5, 1, 2, version=3)})
    controller.handle(ev.BrokersChanged(brokers=brokers(2)))
    found = state(1, 6, 2, version=4)
    following = controller.handle(ev.StatesWritten(written={}, conflicts={("t", 0): found}))
    write = writes(following)["t", 0]
    assert (write.state.leader, write.state.leader_epoch, write.state.zk_version) == (2, 7, 4)


def test_a_topic_that_vanished_during_the_write_is_not_written_again() -> None:
    controller, _ = elected()
    controller.handle(ev.TopicsChanged(topics={"t": topic("t", (1,))}))
    assert controller.handle(ev.StatesWritten(written={}, conflicts={("t", 0): None})) == []


def test_added_partitions_are_led_and_the_old_ones_left_alone() -> None:
    controller, _ = elected(topics=[topic("t", (1,))], states={("t", 0): state(1, 5, 1)})
    commands = controller.handle(ev.TopicsChanged(topics={"t": topic("t", (1,), (2,))}))
    assert list(writes(commands)) == [("t", 1)]


def test_deletion_hides_the_topic_deletes_replicas_then_removes_the_znodes() -> None:
    controller, _ = elected(
        topics=[topic("t", (1,), (2,))], states={("t", 0): state(1, 5, 1), ("t", 1): state(2, 0, 2)}
    )
    commands = controller.handle(ev.DeletionsRequested(topics=frozenset({"t"})))
    assert {w.state.leader for c in of(ev.SendUpdateMetadata, commands) for w in c.partitions} == {
        LEADER_DURING_DELETE
    }
    stops = {c.broker_id: (c.partitions, c.delete) for c in of(ev.SendStopReplica, commands)}
    assert stops == {1: ((("t", 0, -2),), True), 2: ((("t", 1, -2),), True)}
    assert controller.handle(ev.ReplicasDeleted(broker_id=1, partitions=frozenset({("t", 0)}))) == []
    assert controller.handle(ev.ReplicasDeleted(broker_id=2, partitions=frozenset({("t", 1)}))) == []
    assert controller.handle(ev.TopicsHidden(broker_id=1, topics=frozenset({"t"}))) == []
    done = controller.handle(ev.TopicsHidden(broker_id=2, topics=frozenset({"t"})))
    assert done == [ev.RemoveTopic(topic="t")]
    assert controller.handle(ev.TopicsHidden(broker_id=2, topics=frozenset({"t"}))) == []
    controller.handle(ev.TopicRemoved(topic="t"))
    assert controller.cluster.states == {}


def test_deletion_waits_for_the_broker_that_is_down() -> None:
    controller, _ = elected(live=(1,), topics=[topic("t", (1,), (2,))])
    controller.handle(ev.DeletionsRequested(topics=frozenset({"t"})))
    assert controller.handle(ev.ReplicasDeleted(broker_id=1, partitions=frozenset({("t", 0)}))) == []
    commands = controller.handle(ev.BrokersChanged(brokers=brokers(1, 2)))
    assert [(c.broker_id, c.partitions) for c in of(ev.SendStopReplica, commands)] == [(2, (("t", 1, -2),))]
    assert writes(commands) == {}, "a topic that is being deleted gets no leader"


def test_deletion_of_an_unknown_topic_or_with_deletion_off_is_refused() -> None:
    controller, _ = elected(topics=[topic("t", (1,))], controller=Controller(delete_topics=False))
    wish = frozenset({"t", "never"})
    assert controller.handle(ev.DeletionsRequested(topics=wish)) == [
        ev.RefuseDeletion(topic="never"),
        ev.RefuseDeletion(topic="t"),
    ]


def test_a_controlled_shutdown_moves_replicated_partitions_and_leaves_single_ones() -> None:
    states = {("t", 0): state(1, 5, 1, 2), ("s", 0): state(1, 5, 1)}
    controller, _ = elected(topics=[topic("t", (1, 2)), topic("s", (1,), topic_id=2)], states=states)
    commands = controller.handle(ev.ShutdownRequested(broker_id=1))
    assert {k: w.state.leader for k, w in writes(commands).items()} == {("t", 0): 2}
    assert controller.cluster.remaining(1) == [("t", 0)]
    write_all(controller, commands)
    assert controller.cluster.remaining(1) == []


def test_a_recreated_topic_starts_anew() -> None:
    controller, _ = elected(topics=[topic("t", (1,))], states={("t", 0): state(1, 5, 1)})
    commands = controller.handle(ev.TopicsChanged(topics={"t": topic("t", (2,), topic_id=9)}))
    assert writes(commands)["t", 0].state.leader_epoch == 0
    hidden = [w for c in of(ev.SendUpdateMetadata, commands) for w in c.partitions]
    assert {(w.topic_id, w.state.leader) for w in hidden} == {(UUID(int=1), LEADER_DURING_DELETE)}


def test_a_broker_that_fell_behind_is_told_everything_again() -> None:
    controller, _ = elected(
        topics=[topic("t", (1,), (2,))], states={("t", 0): state(1, 5, 1), ("t", 1): state(2, 0, 2)}
    )
    metadata, leaders = controller.handle(ev.BrokerBehind(broker_id=2))
    assert isinstance(metadata, ev.SendUpdateMetadata)
    assert isinstance(leaders, ev.SendLeaderAndIsr)
    assert [(c.broker_id, len(c.partitions)) for c in (metadata, leaders)] == [(2, 2), (2, 1)]


def prefer(controller: Controller, *partitions: PartitionKey) -> list[ev.Command]:
    return controller.handle(ev.PreferredLeadersRequested(partitions=frozenset(partitions)))


def test_the_first_replica_leads_again_when_somebody_wants_that_and_the_isr_stays() -> None:
    controller, _ = elected(topics=[topic("t", (2, 1), (1, 2))], states={("t", 0): state(1, 4, 1, 2)})
    commands = prefer(controller, ("t", 0))
    (write,) = writes(commands).values()
    assert (write.state.leader, write.state.leader_epoch, write.state.isr) == (2, 5, (1, 2))
    assert not of(ev.EndPreferredElection, commands), "the wish stays until it is done"
    following = write_all(controller, commands)
    assert {c.broker_id for c in of(ev.SendLeaderAndIsr, following)} == {1, 2}
    assert {c.broker_id for c in of(ev.SendUpdateMetadata, following)} == {1, 2}
    assert following[-1] == ev.EndPreferredElection()


def test_a_preferred_leader_that_cannot_lead_or_leads_already_ends_the_wish_at_once() -> None:
    topics = [
        topic("out-of-sync", (2, 1)),
        topic("dead", (3, 1)),
        topic("led", (1, 2)),
        topic("doomed", (2, 1)),
    ]
    states = {
        ("out-of-sync", 0): state(1, 4, 1),
        ("dead", 0): state(1, 4, 1),
        ("led", 0): state(1, 4, 1, 2),
        ("doomed", 0): state(1, 4, 1, 2),
    }
    controller, _ = elected(topics=topics, states=states, deletions=["doomed"])
    assert prefer(controller, *states, ("led", 7), ("nowhere", 0)) == [ev.EndPreferredElection()]
    assert prefer(controller) == [ev.EndPreferredElection()]


def test_a_broker_that_is_about_to_stop_is_not_preferred() -> None:
    controller, _ = elected(topics=[topic("t", (2, 1))], states={("t", 0): state(1, 4, 1, 2)})
    controller.handle(ev.ShutdownRequested(broker_id=2))
    assert prefer(controller, ("t", 0)) == [ev.EndPreferredElection()]


def test_a_state_that_its_leader_changed_meanwhile_is_looked_at_again() -> None:
    controller, _ = elected(topics=[topic("t", (2, 1))], states={("t", 0): state(1, 4, 1, 2)})
    prefer(controller, ("t", 0))
    commands = controller.handle(
        ev.StatesWritten(written={}, conflicts={("t", 0): state(1, 6, 2, 1, version=3)})
    )
    (write,) = writes(commands).values()
    assert (write.state.leader, write.state.leader_epoch, write.state.zk_version) == (2, 7, 3)
    without = controller.handle(ev.StatesWritten(written={}, conflicts={("t", 0): state(1, 8, 1, version=4)}))
    assert without[-1] == ev.EndPreferredElection()
    assert not writes(without)
