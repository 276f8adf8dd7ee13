"""Apache Kafka's own TransactionalMessageCopier on brokers of both kinds: what it copies is there once, whatever is killed.

In short: test_e2e_transactions.py copies on one broker, and the simulation kills three.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import transactional_copiers
from commands import headrace
from kafka_oracle import tool_command
from mixed_replicas import HEADRACE, KAFKA, MixedReplicas
from replicated_cluster import PARTITION_COUNT, TOPIC
from transactional_copiers import OUTPUT, CopierProcess

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
MESSAGES_COUNT = 6_000
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


@pytest.mark.long
@pytest.mark.parametrize("kinds", CLUSTERS.values(), ids=CLUSTERS)
def test_what_kafkas_copier_copies_is_there_once_whatever_is_killed(
    kafka_jars: Path, tmp_path: Path, kinds: Mapping[int, str]
) -> None:
    cluster = MixedReplicas(tmp_path, kafka_jars, kinds, transactional_copiers.SETTINGS)
    copiers: list[CopierProcess] = []
    try:
        transactional_copiers.fill(cluster, MESSAGES_COUNT)
        copiers += [copier(kafka_jars, cluster, partition) for partition in range(PARTITION_COUNT)]
        transactional_copiers.harm(
            cluster, copiers, seed=len(set(kinds.values())), brokers_killed=BROKERS_KILLED
        )
        expected = [str(number) for number in range(MESSAGES_COUNT)]
        for partition in range(PARTITION_COUNT):
            assert transactional_copiers.committed(cluster.bootstrap, OUTPUT, partition) == expected
        transactional_copiers.has_no_open_transaction(cluster.bootstrap, OUTPUT, headrace)
    finally:
        for each in copiers:
            each.kill()
        cluster.end()
