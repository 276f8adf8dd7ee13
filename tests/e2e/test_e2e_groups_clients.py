"""Consumer groups as real clients see them: librdkafka (eager and cooperative), kafka-python, kcat, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from uuid import uuid4

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from processes import DevCluster, eventually

PARTITION_COUNT = 6
MESSAGE_COUNT = 600


@pytest.fixture
def topic(broker: DevCluster) -> str:
    """A topic of six partitions with a hundred messages in each."""
    name = f"t{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, PARTITION_COUNT, 1)])[name].result(20)
    produce(broker, name)
    return name


def produce(broker: DevCluster, topic: str, count: int = MESSAGE_COUNT) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % PARTITION_COUNT)
    assert producer.flush(20) == 0


class Member:
    """A librdkafka consumer; `owned` follows its assignment, `seen` counts messages by (partition, offset)."""

    def __init__(self, broker: DevCluster, topic: str, group: str, **settings: object) -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "enable.auto.commit": False,
                **settings,
            }
        )
        self.seen: dict[tuple[int, int], int] = {}
        self.consumer.subscribe([topic])

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def poll(self) -> None:
        for message in self.consumer.consume(200, 0.1):
            if message.error() is None:
                key = (message.partition(), message.offset())
                self.seen[key] = self.seen.get(key, 0) + 1

    def close(self) -> None:
        self.consumer.close()


def poll_until(members: list[Member], condition: object, what: str) -> None:
    def met() -> bool:
        for member in members:
            member.poll()
        assert callable(condition)
        return bool(condition())

    eventually(met, timeout_s=40, what=what)


def shared(members: list[Member]) -> bool:
    """Every partition has exactly one owner and every member owns some."""
    owned = [partition for member in members for partition in member.owned]
    return sorted(owned) == list(range(PARTITION_COUNT)) and all(member.owned for member in members)


@pytest.fixture
def group() -> str:
    return f"g{uuid4().hex[:8]}"


@pytest.fixture(params=["range", "cooperative-sticky"])
def members(
    request: pytest.FixtureRequest, broker: DevCluster, topic: str, group: str
) -> Iterator[list[Member]]:
    """Two members of one group."""
    strategy = {"partition.assignment.strategy": request.param}
    both = [Member(broker, topic, group, **strategy) for _ in range(2)]
    yield both
    for member in both:
        member.close()


def test_members_share_partitions_and_take_over_when_one_leaves(members: list[Member]) -> None:
    first, second = members
    poll_until(members, lambda: shared(members), "a shared assignment")
    poll_until(members, lambda: len(first.seen | second.seen) == MESSAGE_COUNT, "all messages read")
    assert sum(sum(member.seen.values()) for member in members) >= MESSAGE_COUNT
    first.consumer.commit(asynchronous=False)
    second.close()
    poll_until([first], lambda: len(first.owned) == PARTITION_COUNT, "the takeover")


def test_a_member_that_is_killed_is_replaced_after_its_session(
    broker: DevCluster, topic: str, group: str
) -> None:
    survivor = Member(broker, topic, group)
    victim = subprocess.Popen(
        ["kcat", "-b", broker.bootstrap, "-G", group, "-X", "session.timeout.ms=6000", topic],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        poll_until([survivor], lambda: 0 < len(survivor.owned) < PARTITION_COUNT, "a share for kcat")
        victim.kill()
        poll_until([survivor], lambda: len(survivor.owned) == PARTITION_COUNT, "the takeover")
    finally:
        victim.kill()
        victim.wait()
        survivor.close()


def test_kcat_reads_a_topic_as_a_group_and_goes_on_from_its_offsets(
    broker: DevCluster, topic: str, group: str
) -> None:
    command = ["kcat", "-b", broker.bootstrap, "-G", group, "-e", "-X", "auto.offset.reset=earliest", topic]
    first = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(map(int, first.stdout.split())) == list(range(MESSAGE_COUNT))
    produce(broker, topic, 12)
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(map(int, second.stdout.split())) == list(range(12))


def test_kafka_python_consumers_rebalance_commit_and_go_on(
    broker: DevCluster, topic: str, group: str
) -> None:
    def consumer() -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )

    both = [consumer(), consumer()]
    seen: set[tuple[int, int]] = set()
    deadline = time.monotonic() + 60
    while len(seen) < MESSAGE_COUNT or not all(each.assignment() for each in both):
        assert time.monotonic() < deadline, (len(seen), [each.assignment() for each in both])
        for each in both:
            for records in each.poll(timeout_ms=200).values():
                seen.update((record.partition, record.offset) for record in records)
    assert sorted(p.partition for each in both for p in each.assignment()) == list(range(PARTITION_COUNT))
    for each in both:
        each.commit()
        each.close()
    later = consumer()
    partition = kafka.TopicPartition(topic, 0)
    assert later.committed(partition) == MESSAGE_COUNT // PARTITION_COUNT
    later.close()


def test_a_static_member_that_restarts_gets_its_partitions_back_without_a_rebalance(
    broker: DevCluster, topic: str, group: str
) -> None:
    static = {"group.instance.id": "one", "session.timeout.ms": 30_000}
    first, other = Member(broker, topic, group, **static), Member(broker, topic, group)
    poll_until([first, other], lambda: shared([first, other]), "a shared assignment")
    owned, others = first.owned, other.owned
    first.close()
    again = Member(broker, topic, group, **static)
    poll_until([again, other], lambda: bool(again.owned), "the return")
    assert (again.owned, other.owned) == (owned, others)
    again.close()
    other.close()


def test_a_transactional_producer_hears_that_there_are_no_transactions(broker: DevCluster) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "log_level": 0}
    )
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.init_transactions(3)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError.UNSUPPORTED_VERSION


def headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", "groups", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_groups_command_lists_describes_and_deletes(broker: DevCluster, topic: str, group: str) -> None:
    member = Member(broker, topic, group)
    poll_until([member], lambda: len(member.seen) == MESSAGE_COUNT, "all messages read")
    member.consumer.commit(asynchronous=False)
    produce(broker, topic, 12)
    where = ("--bootstrap", broker.bootstrap)

    listed = json.loads(headrace("list", *where, "--json").stdout)
    assert {"group": group, "state": "STABLE", "simple": False} in listed
    described = json.loads(headrace("describe", group, *where, "--json").stdout)
    assert (described["state"], described["lag"], len(described["members"])) == ("STABLE", 12, 1)
    assert [(row["offset"], row["end"], row["lag"]) for row in described["partitions"]] == [(100, 102, 2)] * 6
    table = headrace("describe", group, *where).stdout
    assert f"{group}: STABLE, 1 members, lag 12" in table

    refused = headrace("delete", group, *where)
    assert (refused.returncode, "not empty" in refused.stderr.lower()) == (1, True), refused.stderr
    member.close()
    eventually(lambda: json.loads(headrace("describe", group, *where, "--json").stdout)["state"] == "EMPTY")
    assert headrace("delete", group, *where).returncode == 0
    gone = headrace("describe", group, *where)
    assert gone.returncode == 1
    assert "There is no group" in gone.stderr
