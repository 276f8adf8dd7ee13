"""headrace and Apache Kafka 3.9 as replicas of the same partitions: either leads, follows, coordinates and is controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from mixed_replicas import HEADRACE, KAFKA, MixedReplicas
from processes import eventually
from replicated_cluster import PARTITION_COUNT, GroupReader, Writer, check, full, small_disk

Start = Callable[..., "MixedReplicas"]


@pytest.fixture
def replicas(kafka_jars: Path, tmp_path: Path) -> Iterator[Start]:
    started: list[MixedReplicas] = []

    def start(kinds: Mapping[int, str], set: Mapping[str, str] | None = None) -> MixedReplicas:
        started.append(MixedReplicas(tmp_path, kafka_jars, kinds, set))
        return started[-1]

    yield start
    for cluster in started:
        cluster.end()


# In short: either kind replicates what the other leads in test_conformance_mixed_cluster.py.
@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "protocol"),
    [
        ({1: HEADRACE, 2: KAFKA, 3: HEADRACE}, "3.9"),
        ({1: KAFKA, 2: HEADRACE, 3: KAFKA}, "3.9"),
        # The oldest that may be chosen, and the first with topic ids in Fetch.
        ({1: KAFKA, 2: HEADRACE, 3: HEADRACE}, "3.0"),
        ({1: HEADRACE, 2: KAFKA, 3: KAFKA}, "3.2"),
    ],
)
def test_leaders_of_either_kind_die_and_nothing_acknowledged_is_lost(
    replicas: Start, kinds: Mapping[int, str], protocol: str
) -> None:
    cluster = replicas(kinds, {"inter.broker.protocol.version": protocol})
    writer, reader = Writer(cluster), GroupReader(cluster)
    writer.wait_for_more()
    led = {cluster.leader(partition): partition for partition in range(PARTITION_COUNT)}
    for leader, partition in led.items():
        cluster.brokers[leader].kill()
        eventually(lambda p=partition, n=leader: cluster.leader(p) != n, what="another leader")  # type: ignore[misc]
        writer.wait_for_more()
        cluster.start(leader)
        cluster.wait_until_in_sync()
    check(cluster, writer, reader)
    cluster.check_replicas()


@pytest.mark.long
def test_a_controller_of_apache_kafka_has_others_lead_what_a_full_disk_held(
    replicas: Start, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "broker-2" / "logs") as disk:
        cluster = replicas({1: KAFKA, 2: HEADRACE, 3: KAFKA})
        try:
            writer, reader = Writer(cluster), GroupReader(cluster)
            writer.wait_for_more()
            assert cluster.controller() == 1
            with full(disk):
                eventually(
                    lambda: 2 not in cluster.leaders(), what="others that lead what the full disk held"
                )
                writer.wait_for_more()
            cluster.wait_until_in_sync()
            check(cluster, writer, reader)
        finally:
            cluster.end()


@pytest.mark.long
def test_a_rolling_swap_to_apache_kafka_and_back_under_load(replicas: Start) -> None:
    cluster = replicas({1: HEADRACE, 2: HEADRACE, 3: HEADRACE})
    writer, reader = Writer(cluster), GroupReader(cluster)
    for kind in (KAFKA, HEADRACE):
        for number in cluster.addresses:
            cluster.swap(number, kind)
            writer.wait_for_more()
    check(cluster, writer, reader)
    cluster.check_replicas()


@pytest.mark.long
def test_partitions_move_among_three_brokers_of_both_kinds_under_load(replicas: Start) -> None:
    """Each pair in turn has them; once the controller dies in the middle, and one of the other kind goes on."""
    cluster = replicas({1: HEADRACE, 2: KAFKA, 3: HEADRACE})
    writer, reader = Writer(cluster), GroupReader(cluster)
    for through, wanted in enumerate(([1, 2], [2, 3], [3, 1]), start=1):
        cluster.begin_move(wanted, through)
        eventually(lambda w=wanted: cluster.has_moved(w), what=f"replicas on {wanted}")  # type: ignore[misc]
        writer.wait_for_more()
    controller = cluster.controller()
    cluster.begin_move([1, 2, 3], controller)
    cluster.brokers[controller].kill()
    eventually(lambda: cluster.controller() not in (-1, controller), what="another controller")
    writer.wait_for_more()
    cluster.start(controller)
    eventually(lambda: cluster.has_moved([1, 2, 3]), what="replicas on all")
    check(cluster, writer, reader)
    cluster.check_replicas()
