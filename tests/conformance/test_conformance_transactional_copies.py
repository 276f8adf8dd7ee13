"""Apache Kafka's own TransactionalMessageCopier and Kafka Streams on brokers of both kinds: what they copy is there once,
whatever is killed.

In short: test_e2e_transactions.py copies on one broker, and the simulation kills three.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import transactional_copiers
from kafka_oracle import tool_command
from mixed_replicas import HEADRACE, KAFKA, MixedReplicas
from replicated_cluster import PARTITION_COUNT, TOPIC
from transactional_copiers import OUTPUT, CopierProcess, Feeder

from bench.apache_kafka import find_streams_jars

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
STREAMS_PROGRAM = Path(__file__).with_name("ExactlyOnceCounts.java")
MESSAGES_COUNT = 6_000
"""In each partition: as many as are copied while brokers die."""
SEED = 1
BROKERS_KILLED = 4
CLUSTERS = {
    "headrace": {1: HEADRACE, 2: HEADRACE, 3: HEADRACE},
    "one of Kafka's": {1: HEADRACE, 2: KAFKA, 3: HEADRACE},
    "two of Kafka's": {1: KAFKA, 2: HEADRACE, 3: KAFKA},
}


def copier(jars: Path, cluster: MixedReplicas, partition: int) -> CopierProcess:
    """It copies a partition of the input, and aborts a third of its transactions by itself."""
    options = {
        "--broker-list": cluster.bootstrap,
        "--input-topic": TOPIC,
        "--input-partition": str(partition),
        "--output-topic": OUTPUT,
        "--consumer-group": f"copier-{partition}",
        "--transactional-id": f"copier-{partition}",
        "--transaction-size": "40",
        "--transaction-timeout": "20000",
    }
    arguments = [word for option in options.items() for word in option]
    command = tool_command(jars, COPIER, *arguments, "--enable-random-aborts", "--use-group-metadata")
    return CopierProcess(command, cluster.home / f"copier-{partition}.log")


def streams(jars: Path, cluster: MixedReplicas, number: int) -> CopierProcess:
    """One of two instances of a program with Kafka Streams, which has state and `exactly_once_v2`."""
    application = ("counts", TOPIC, OUTPUT, str(cluster.home / f"state-{number}"))
    libraries = ("-cp", f"{find_streams_jars()}/*:{jars}/*")
    command = ["java", "-Xmx256m", *libraries, str(STREAMS_PROGRAM), cluster.bootstrap, *application]
    return CopierProcess(command, cluster.home / f"streams-{number}.log")


@pytest.fixture
def cluster(kafka_jars: Path, tmp_path: Path, kinds: Mapping[int, str]) -> Iterator[MixedReplicas]:
    made = MixedReplicas(tmp_path, kafka_jars, kinds, transactional_copiers.SETTINGS)
    transactional_copiers.make_output(made)
    yield made
    made.end()


@pytest.mark.long
@pytest.mark.parametrize("kinds", CLUSTERS.values(), ids=CLUSTERS)
def test_what_kafkas_copier_copies_is_there_once_whatever_is_killed(
    kafka_jars: Path, cluster: MixedReplicas
) -> None:
    feeder = Feeder(cluster)
    feeder.feed(MESSAGES_COUNT)
    feeder.finish()
    copiers = [copier(kafka_jars, cluster, partition) for partition in range(PARTITION_COUNT)]
    try:
        transactional_copiers.harm(cluster, copiers, SEED, BROKERS_KILLED)
        transactional_copiers.wait_until(lambda: all(each.is_done for each in copiers), copiers)
        expected = [str(number) for number in range(MESSAGES_COUNT)]
        for partition in range(PARTITION_COUNT):
            assert transactional_copiers.committed(cluster.bootstrap, OUTPUT, partition) == expected
        transactional_copiers.wait_until_none_hangs(cluster.bootstrap, OUTPUT)
    finally:
        for each in copiers:
            each.kill()


@pytest.mark.long
@pytest.mark.parametrize("kinds", CLUSTERS.values(), ids=CLUSTERS)
def test_what_kafka_streams_counts_is_counted_once_whatever_is_killed(
    kafka_jars: Path, cluster: MixedReplicas
) -> None:
    feeder = Feeder(cluster)
    feeder.start()
    copiers = [streams(kafka_jars, cluster, number) for number in range(2)]

    def found() -> list[list[str]]:
        places = range(PARTITION_COUNT)
        return [transactional_copiers.committed(cluster.bootstrap, OUTPUT, partition) for partition in places]

    try:
        transactional_copiers.harm(cluster, copiers, SEED, BROKERS_KILLED)
        feeder.finish()
        transactional_copiers.wait_until(lambda: min(map(len, found())) >= feeder.count, copiers)
        expected = [f"{number} {number + 1}" for number in range(feeder.count)]
        assert found() == [expected] * PARTITION_COUNT
        transactional_copiers.wait_until_none_hangs(cluster.bootstrap, OUTPUT)
    finally:
        for each in copiers:
            each.kill()
