"""What `headrace cluster` makes of what it saw: what is not well, and whom a broker that stops would hurt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.cli.broker_look import BrokerLook
from headrace.cli.cluster_admin import ClusterLook, Move, PartitionView
from headrace.cli.cluster_status import ClusterState, as_json, named, problems, stopping
from headrace.cli.reassignment_plan import Key

HEADRACE = BrokerLook(engine="headrace", version="0.1.0", protocol="3.9-IV0")


def state(
    partitions: Mapping[Key, tuple[int, tuple[int, ...], tuple[int, ...]]],
    *,
    min_isr: int = 2,
    **changes: Any,
) -> ClusterState:
    """Brokers 1 to 3, of which 1 is the controller, and partitions as (leader, replicas, isr)."""
    alive = changes.pop("alive", (1, 2, 3))
    look = ClusterLook(
        racks=dict.fromkeys(alive),
        controller=changes.pop("controller", 1),
        addresses={broker: (f"10.0.0.{broker}", 9092) for broker in alive},
        partitions={
            key: PartitionView(leader=leader, replicas=replicas, isr=isr)
            for key, (leader, replicas, isr) in partitions.items()
        },
        unknown=(),
    )
    return ClusterState(
        look=look,
        brokers=dict.fromkeys(alive, HEADRACE) | changes.pop("brokers", {}),
        moves=changes.pop("moves", {}),
        min_isr={topic: min_isr for topic, _ in partitions},
        drained=frozenset(changes.pop("drained", ())),
    )


def test_a_cluster_with_all_in_sync_is_well() -> None:
    found = as_json(state({("t", 0): (1, (1, 2, 3), (3, 2, 1)), ("t", 1): (2, (2, 3), (2, 3))}))
    assert found["well"]
    assert found["problems"] == []
    assert found["at_min_isr"] == ["t-1"]
    assert [(b["broker"], b["leads"], b["address"]) for b in found["brokers"]] == [
        (1, 1, "10.0.0.1:9092"),
        (2, 1, "10.0.0.2:9092"),
        (3, 0, "10.0.0.3:9092"),
    ]


def test_each_thing_that_is_not_well_has_its_sentence() -> None:
    seen = state(
        {
            ("t", 0): (-1, (3,), ()),
            ("t", 1): (1, (1, 2, 3), (1,)),
            ("t", 2): (1, (1, 2), (1, 2)),
        },
        alive=(1, 2),
        controller=-1,
        brokers={2: BrokerLook(failure="timed out"), 1: BrokerLook(offline_log_dirs=("/b", "/c"))},
    )
    assert problems(seen) == [
        "No broker is the controller: leaders that die are not replaced.",
        "Brokers that have replicas and are not alive: 3.",
        "Broker 1 lost log directories: /b, /c.",
        "Broker 2 is registered, but does not answer: timed out.",
        "Partitions without a leader (1): t-0.",
        "Partitions below min.insync.replicas (2): t-0, t-1.",
        "Partitions with replicas out of sync (2): t-0, t-1.",
    ]
    assert as_json(seen)["under_replicated"] == {"t-0": [3], "t-1": [2, 3]}


def test_a_broker_that_was_drained_is_not_missed() -> None:
    partitions = {("t", 0): (1, (1, 2, 3), (1, 2)), ("t", 1): (1, (1, 2), (1, 2))}
    found = as_json(state(partitions, alive=(1, 2), drained=(3,)))
    assert found["well"]
    assert (found["drained"], found["waiting_for_drained"]) == ([3], ["t-0"])
    assert not as_json(state(partitions, alive=(1, 2)))["well"]


def test_what_a_drained_broker_does_not_excuse_is_told() -> None:
    partitions = {
        ("t", 0): (1, (1, 2, 3), (1,)),
        ("t", 1): (-1, (3,), ()),
        ("t", 2): (1, (1, 2, 3), (1, 2)),
    }
    seen = state(partitions, alive=(1, 2), drained=(3,))
    assert problems(seen) == [
        "Partitions without a leader (1): t-1.",
        "Partitions below min.insync.replicas (2): t-0, t-1.",
        "Partitions with replicas out of sync (1): t-0.",
    ]
    assert stopping(seen, 2).hindered == {("t", 2): 1}


def test_replicas_to_come_are_not_missed() -> None:
    move = Move(replicas=(1, 2, 3), adding=(3,), removing=(1,))
    partitions = {("t", 0): (1, (1, 2, 3), (1, 2))}
    assert as_json(state(partitions, moves={("t", 0): move}))["well"]
    assert not as_json(state(partitions))["well"]


def test_a_broker_may_stop_while_its_partitions_keep_enough_in_sync() -> None:
    whole = state({("t", 0): (1, (1, 2, 3), (1, 2, 3)), ("t", 1): (2, (2, 3), (2, 3))}, min_isr=1)
    assert (dict(stopping(whole, 2).hindered), dict(stopping(whole, 2).never)) == ({}, {})


def test_it_may_not_where_others_are_out_of_sync_or_too_few() -> None:
    seen = state(
        {
            ("hindered", 0): (1, (1, 2, 3), (1, 2)),
            ("out of it itself", 0): (1, (1, 2, 3), (1, 3)),
            ("elsewhere", 0): (1, (1, 3), (1,)),
            ("never", 0): (2, (2, 1), (2, 1)),
        }
    )
    assert stopping(seen, 2).hindered == {("hindered", 0): 1}
    assert stopping(seen, 2).never == {("never", 0): 1}
    assert stopping(seen, 9) == stopping(state({}), 1)


def test_it_may_not_where_another_one_is_silent_though_still_said_to_be_in_sync() -> None:
    partitions = {("t", 0): (1, (1, 2, 3), (1, 2, 3))}
    silent = BrokerLook(failure="timed out")
    assert stopping(state(partitions, brokers={3: silent}), 1).hindered == {("t", 0): 1}
    assert stopping(state(partitions, alive=(1, 2)), 1).hindered == {("t", 0): 1}
    assert not stopping(state(partitions, brokers={3: silent}), 3).hindered


def test_many_partitions_are_told_as_a_number() -> None:
    assert named([("t", n) for n in range(12)]).endswith("t-9 and 2 more")
