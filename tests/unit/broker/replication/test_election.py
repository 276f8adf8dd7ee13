"""Who leads a partition: Kafka's election rules, case by case."""

from headrace.broker.replication.election import (
    elect_first,
    elect_for_shutdown,
    elect_offline,
    without_leader,
)


def test_a_new_partition_is_led_by_its_first_live_replica_and_all_live_replicas_are_in_sync() -> None:
    assert elect_first((3, 1, 2), {1, 2}) == (1, (1, 2))
    assert elect_first((3, 1, 2), {1, 2, 3}) == (3, (3, 1, 2))


def test_a_new_partition_without_a_live_replica_has_no_leader() -> None:
    assert elect_first((3,), {1, 2}) is None


def test_an_offline_partition_is_led_by_an_in_sync_replica_only() -> None:
    assert elect_offline((1, 2, 3), (3, 2), {1, 3}) == (3, (3,))
    assert elect_offline((1, 2, 3), (2,), {1, 3}) is None


def test_the_order_of_the_assignment_decides_not_that_of_the_isr() -> None:
    assert elect_offline((1, 2, 3), (3, 2), {2, 3}) == (2, (3, 2))


def test_an_unclean_election_takes_any_live_replica_as_the_only_one_in_sync() -> None:
    assert elect_offline((1, 2, 3), (2,), {1, 3}, unclean=True) == (1, (1,))
    assert elect_offline((1, 2, 3), (2,), {2, 3}, unclean=True) == (2, (2,))


def test_a_leaving_broker_is_succeeded_by_one_that_stays() -> None:
    assert elect_for_shutdown((1, 2, 3), (1, 2, 3), {1, 2, 3}, {1}) == (2, (2, 3))
    assert elect_for_shutdown((1, 2), (1,), {1, 2}, {1}) is None


def test_the_last_member_stays_in_the_isr_for_it_holds_the_data() -> None:
    assert without_leader((1,), set()) == (1,)
    assert without_leader((1, 2, 3), set()) == (3,)
    assert without_leader((1, 2, 3), {2}) == (2,)
