"""What becomes of a group's partitions when a member dies, and the command that tells of groups."""

from __future__ import annotations

import json
import subprocess
import sys
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from processes import DevCluster, eventually

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.coordinator import await_coordinator

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
    """A librdkafka consumer; `owned` follows its assignment, `seen` has the (partition, offset) of each message."""

    def __init__(self, broker: DevCluster, topic: str, group: str) -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "enable.auto.commit": False,
            }
        )
        self.seen: set[tuple[int | None, int | None]] = set()
        self.consumer.subscribe([topic])

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def poll(self) -> None:
        for message in self.consumer.consume(200, 0.1):
            if message.error() is None:
                self.seen.add((message.partition(), message.offset()))

    def close(self) -> None:
        self.consumer.close()


def poll_until(members: list[Member], condition: object, what: str) -> None:
    def met() -> bool:
        for member in members:
            member.poll()
        assert callable(condition)
        return bool(condition())

    eventually(met, timeout_s=40, what=what)


@pytest.fixture
def group() -> str:
    return f"g{uuid4().hex[:8]}"


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


def test_a_lag_is_unknown_where_nothing_is_committed(broker: DevCluster, topic: str, group: str) -> None:
    """Of six partitions with messages one has a committed offset, and the group has no members (any more)."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    await_coordinator(Bootstrap(broker.bootstrap), group)
    offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 2, 90)])
    client.alter_consumer_group_offsets([offsets])[group].result()
    where = ("--bootstrap", broker.bootstrap)
    described = json.loads(headrace("describe", group, *where, "--json").stdout)
    assert described["lag"] is None
    rows = [(row["partition"], row["offset"], row["lag"]) for row in described["partitions"]]
    assert rows == [(index, 90, 10) if index == 2 else (index, None, None) for index in range(6)]
    assert (
        "lag unknown (5 of 6 partitions have no committed offset"
        in headrace("describe", group, *where).stdout
    )


def test_a_group_without_members_goes_on_where_a_person_says(
    broker: DevCluster, topic: str, group: str
) -> None:
    where = ("--bootstrap", broker.bootstrap)

    def reset(place: str, *more: str) -> list[tuple[int | None, int]]:
        done = headrace("reset", group, "--to", place, *more, *where, "--json")
        assert done.returncode == 0, done.stderr
        return [(row["before"], row["offset"]) for row in json.loads(done.stdout)]

    def offsets() -> list[int | None]:
        told = json.loads(headrace("describe", group, *where, "--json").stdout)
        return [row["offset"] for row in told["partitions"]]

    nothing = headrace("reset", group, "--to", "earliest", *where)
    assert (nothing.returncode, "has committed nothing" in nothing.stderr) == (1, True), nothing.stderr
    assert reset("7", "--topic", topic) == [(None, 7)] * 6
    assert reset("latest", "--dry-run") == [(7, 100)] * 6
    assert offsets() == [7] * 6
    assert reset("1000") == [(7, 100)] * 6
    assert reset("2001-01-01") == [(100, 0)] * 6
    assert reset("2999-01-01T00:00+02:00") == [(0, 100)] * 6
    assert offsets() == [100] * 6
    member = Member(broker, topic, group)
    poll_until([member], lambda: member.consumer.assignment() != [], "an assignment")
    refused = headrace("reset", group, "--to", "earliest", *where)
    assert (refused.returncode, "has members" in refused.stderr) == (1, True), refused.stderr
    member.close()
    for wrong in ("soon", "-1"):
        assert headrace("reset", group, "--to", wrong, *where).returncode == 2
    gone = headrace("reset", group, "--to", "0", "--topic", "nosuch", *where)
    assert (gone.returncode, "topic nosuch does not exist" in gone.stderr) == (1, True)
