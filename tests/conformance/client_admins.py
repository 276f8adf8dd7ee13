"""What people do with each library's admin client, as transcripts: (what was asked, what came of it).

Each script works on a topic and a group of its own name. Errors are noted by name; of the settings some are noted, as
the brokers describe more of them than they share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import kafka
import kafka.admin
from confluent_kafka import admin as confluent_admin

Transcript = list[tuple[str, Any]]
WAIT_S = 20
SETTINGS = ("cleanup.policy", "retention.ms", "segment.bytes", "max.message.bytes", "compression.type")


def librdkafka(bootstrap: str, name: str) -> Transcript:
    """confluent-kafka's AdminClient."""
    return _Librdkafka(bootstrap, name).transcript()


class _Librdkafka:
    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap, self.name = bootstrap, name
        self.admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
        self.notes: Transcript = []

    def transcript(self) -> Transcript:
        self.topics()
        self.configs()
        self.records()
        self.groups()
        self.note("delete", self.admin.delete_topics([self.name, f"{self.name}-gone"]))
        return self.notes

    def note(
        self, what: str, futures: dict[Any, Any], value: Callable[[Any], Any] = lambda _: "done"
    ) -> None:
        for key, future in futures.items():
            try:
                outcome = value(future.result(WAIT_S))
            except confluent_kafka.KafkaException as error:
                outcome = error.args[0].name()
            self.notes.append((f"{what} {key}", outcome))

    def topics(self) -> None:
        new, name = confluent_admin.NewTopic, self.name
        wanted = [
            new(name, 2, 1, config={"retention.ms": "123456", "cleanup.policy": "compact,delete"}),
            new(f"{name} with spaces", 1, 1),
            new(f"{name}-factor", 1, 5),
            new(f"{name}-unknown", 1, 1, config={"no.such.setting": "1"}),
            new(f"{name}-invalid", 1, 1, config={"retention.ms": "soon"}),
        ]
        self.note("create", self.admin.create_topics(wanted, operation_timeout=WAIT_S))
        self.note("create again", self.admin.create_topics(wanted[:1]))
        for count in (4, 3, 4):
            grown = [confluent_admin.NewPartitions(name, count)]
            self.note(f"grow to {count}", self.admin.create_partitions(grown, operation_timeout=WAIT_S))
        found = self.admin.describe_topics(confluent_kafka.TopicCollection([name, f"{name}-gone"]))
        self.note("describe", found, lambda t: (t.is_internal, [(p.id, p.leader.id) for p in t.partitions]))
        cluster = self.admin.describe_cluster().result(WAIT_S)
        nodes = [node.id for node in cluster.nodes]
        self.notes.append(("cluster", (cluster.cluster_id, cluster.controller.id, nodes)))

    def configs(self) -> None:
        kind, entry = confluent_admin.ResourceType.TOPIC, confluent_admin.ConfigEntry
        operation = confluent_admin.AlterConfigOpType
        changes = [
            entry("retention.ms", "654321", incremental_operation=operation.SET),
            entry("cleanup.policy", "compact", incremental_operation=operation.SUBTRACT),
            entry("segment.bytes", None, incremental_operation=operation.DELETE),
        ]
        wrong = [entry("retention.ms", "x", incremental_operation=operation.SET)]
        for incremental in (changes, wrong):
            resource = confluent_admin.ConfigResource(kind, self.name, incremental_configs=incremental)
            self.note("alter", self.admin.incremental_alter_configs([resource]))
        for topic in (self.name, f"{self.name}-gone"):
            self.note(
                "configs",
                self.admin.describe_configs([confluent_admin.ConfigResource(kind, topic)]),
                lambda found: [(key, found[key].value, found[key].source) for key in SETTINGS],
            )

    def records(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for number in range(10):
            producer.produce(self.name, b"v", b"k", 0, timestamp=1_700_000_000_000 + number)
        producer.flush(WAIT_S)
        partition = confluent_kafka.TopicPartition
        for before in (4, 11, confluent_kafka.OFFSET_END):
            deleted = self.admin.delete_records([partition(self.name, 0, before)])
            self.note(f"delete before {before}", deleted, lambda found: found.low_watermark)
        spec: Any = confluent_admin.OffsetSpec
        for wanted in (spec.earliest(), spec.latest(), spec.max_timestamp(), spec.for_timestamp(5)):
            found = self.admin.list_offsets({partition(self.name, 0): wanted})
            self.note("offset", found, lambda found: (found.offset, found.timestamp))

    def groups(self) -> None:
        partition, group = confluent_kafka.TopicPartition, self.name
        offsets = [
            partition(self.name, 0, 7, metadata="m"),
            partition(self.name, 3, 0),
            partition(self.name, 9, 0),
        ]
        asked = [confluent_kafka.ConsumerGroupTopicPartitions(group, offsets)]

        def committed(found: Any) -> list[Any]:
            return [
                (p.partition, p.offset, p.metadata, p.error and p.error.name())
                for p in found.topic_partitions
            ]

        self.note("commit", self.admin.alter_consumer_group_offsets(asked), committed)
        asked = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
        self.note("committed", self.admin.list_consumer_group_offsets(asked), committed)
        listed = self.admin.list_consumer_groups().result(WAIT_S).valid
        mine = [
            (g.is_simple_consumer_group, g.state.name, g.type.name) for g in listed if g.group_id == group
        ]
        self.notes.append(("listed", mine))
        described = self.admin.describe_consumer_groups([group])
        self.note("group", described, lambda g: (g.state.name, g.is_simple_consumer_group, len(g.members)))
        for again in ("", " again"):
            self.note(f"delete group{again}", self.admin.delete_consumer_groups([group]))


def kafka_python(bootstrap: str, name: str) -> Transcript:
    """kafka-python's KafkaAdminClient."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    notes: Transcript = []

    def note(what: str, ask: Callable[[], Any], value: Callable[[Any], Any] = lambda _: "done") -> None:
        try:
            notes.append((what, value(ask())))
        except kafka.errors.KafkaError as error:
            notes.append((what, type(error).__name__))

    new = {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "123456"}}
    for what in ("create", "create again"):
        note(what, lambda: admin.create_topics({name: new}, timeout_ms=WAIT_S * 1000))
    note("create odd", lambda: admin.create_topics({f"{name}-odd": {**new, "configs": {"no.such": "1"}}}))
    for count in (3, 2):
        note(f"grow to {count}", partial(admin.create_partitions, {name: count}))
    resource = kafka.admin.ConfigResource("TOPIC", name)
    changed = kafka.admin.ConfigResource("TOPIC", name, {"segment.bytes": "20000"})
    note("alter", lambda: admin.alter_configs([changed]))
    note("configs", lambda: admin.describe_configs([resource]), lambda found: _modified(found, name))
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    sent = [producer.send(name, b"v", partition=0).get(timeout=WAIT_S).offset for _ in range(10)]
    producer.close()
    notes.append(("sent", sent))
    place = kafka.TopicPartition(name, 0)
    for before in (4, 11):
        note(
            f"delete before {before}",
            partial(admin.delete_records, {place: before}),
            lambda found: found[place]["low_watermark"],
        )
    offsets = {place: kafka.OffsetAndMetadata(7, "m", -1)}
    note("commit", lambda: admin.alter_group_offsets(name, offsets), lambda found: found[place].__name__)
    note("committed", lambda: admin.list_group_offsets({name: None})[name][place], tuple)
    note("listed", admin.list_groups, lambda found: [_state(g) for g in found if g["group_id"] == name])
    note("group", lambda: admin.describe_groups([name])[name], lambda g: (g["group_state"], g["members"]))
    for what in ("delete group", "delete group again"):
        note(what, lambda: admin.delete_groups([name]), lambda found: str(found[name]))
    for what in ("delete", "delete again"):
        note(what, lambda: admin.delete_topics([name]))
    admin.close()
    return notes


def _modified(found: Any, name: str) -> list[Any]:
    settings: Iterable[tuple[str, Any]] = next(iter(found.values()))[name].items()
    return sorted((key, data["value"]) for key, data in settings)


def _state(group: Any) -> tuple[Any, ...]:
    return group["protocol_type"], group["group_state"], group["group_type"]


def aiokafka_(bootstrap: str, name: str) -> Transcript:
    """aiokafka's AIOKafkaAdminClient."""
    return asyncio.run(_aiokafka(bootstrap, name))


async def _aiokafka(bootstrap: str, name: str) -> Transcript:
    notes: Transcript = []

    async def note(what: str, asked: Awaitable[Any], value: Callable[[Any], Any] = lambda _: "done") -> None:
        try:
            notes.append((what, value(await asked)))
        except aiokafka.errors.KafkaError as error:
            notes.append((what, type(error).__name__))

    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    new = aiokafka.admin.NewTopic(name, 2, 1, topic_configs={"retention.ms": "123456"})
    for what in ("create", "create again"):
        created = admin.create_topics([new], timeout_ms=WAIT_S * 1000)
        await note(what, created, lambda found: [tuple(error)[:2] for error in found.topic_errors])
    for count in (3, 2):
        grown = {name: aiokafka.admin.NewPartitions(count)}
        await note(f"grow to {count}", admin.create_partitions(grown))
    resource = aiokafka.admin.config_resource.ConfigResource
    kind = aiokafka.admin.config_resource.ConfigResourceType.TOPIC
    await note("alter", admin.alter_configs([resource(kind, name, configs={"segment.bytes": "20000"})]))
    configs = admin.describe_configs([resource(kind, name, configs=dict.fromkeys(SETTINGS))])
    await note("configs", configs, lambda found: sorted(e[:2] for r in found[0].resources for e in r[4]))
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        sent = [(await producer.send_and_wait(name, b"v", partition=0)).offset for _ in range(10)]
    notes.append(("sent", sent))
    place = aiokafka.TopicPartition(name, 0)
    for before in (4, 11):
        records = {place: aiokafka.admin.RecordsToDelete(before)}
        await note(f"delete before {before}", admin.delete_records(records), lambda found: found[place])
    consumer = aiokafka.AIOKafkaConsumer(group_id=name, bootstrap_servers=bootstrap, enable_auto_commit=False)
    async with consumer:
        consumer.assign([place])
        await consumer.commit({place: (7, "m")})
    await note("committed", admin.list_consumer_group_offsets(name), lambda found: tuple(found[place]))
    listed = admin.list_consumer_groups()
    await note("listed", listed, lambda found: [group for group in found if group[0] == name])
    await note("group", admin.describe_consumer_groups([name]), lambda found: found[0].groups[0][:4])
    for what in ("delete", "delete again"):
        gone = admin.delete_topics([name], timeout_ms=WAIT_S * 1000)
        await note(what, gone, lambda found: [tuple(error) for error in found.topic_error_codes])
    await admin.close()
    return notes


ADMINS: dict[str, Callable[[str, str], Transcript]] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka_,
}
