"""Coordinators in states that pass: too few replicas for what a member's return writes, groups that are still being loaded.

For the latter, brokers start with so many commits that reading them takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka_oracle import KafkaBroker
from pairs import leave_topic, running_pair
from processes import BrokerProcess, ForegroundProcess, eventually
from sessions import (
    ANSWER_SECONDS_MAX,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    Pair,
    Session,
    create_topic,
)
from test_conformance_groups import await_coordinator, enter, heartbeat, join, offset_commit, sync
from zookeeper_process import ZooKeeperProcess

from headrace.broker.groups.records import OffsetValue, encode_offset_key, encode_offset_value
from headrace.broker.wire import batches

LOADING, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
NOBODY, OFFSETS_ID = 7, "AAAAAAAAQACAAAAAAAAAAw"
RECORDS_PER_BATCH = 1000
# As many as each of them is busy with for some seconds, of which the requests take a few tenths.
KAFKA_BATCH_COUNT, BATCH_COUNT = 2000, 300
IDEMPOTENT = {"transactional_id": None, "transaction_timeout_ms": 1000}
WANTED = [{"name": "group-offsets", "partition_indexes": [0]}]


@pytest.fixture(scope="module")
def loaded_pair(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A pair with one partition of offsets, which nobody compacts, and one of whose two replicas is not there."""
    settings = {
        "offsets.topic.num.partitions": "1",
        "log.cleaner.enable": "false",
        # Nobody else can lead that partition.
        "controlled.shutdown.enable": "false",
    }
    with running_pair(kafka_jars, zookeeper, tmp_path_factory.mktemp("loaded"), settings) as both:
        for chroot in ("/kafka", "/headrace"):
            config = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
            leave_topic(both.znodes, chroot, "__consumer_offsets", OFFSETS_ID, {0: [1, NOBODY]}, config)
            both.znodes.delete(f"{chroot}/controller")
        both.wait_for_coordinator()
        yield both


@pytest.mark.acceptance
def test_a_static_member_comes_back_and_too_few_replicas_may_hear_of_it(loaded_pair: Pair) -> None:
    name = {"group_instance_id": "i-1"}

    def demand_replicas(session: Session, count: int) -> None:
        config = {"name": "min.insync.replicas", "config_operation": 0, "value": str(count)}
        resource = {"resource_type": 2, "resource_name": "__consumer_offsets", "configs": [config]}
        session.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})

        def is_in_force() -> bool:
            commit = session.look(OFFSET_COMMIT, 7, offset_commit("probe", 1))
            codes = {p["partition_index"]: p["error_code"] for p in commit["topics"][0]["partitions"]}
            return bool(codes[0] == (0 if count == 1 else COORDINATOR_NOT_AVAILABLE))

        eventually(is_in_force, what=f"a minimum of {count}")

    def script(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        await_coordinator(session, "static")
        old = enter(session, 5, "static", **name)
        member, generation = old["member_id"], old["generation_id"]
        session.ask(SYNC_GROUP, 5, sync(5, "static", member, generation, member, **name))
        demand_replicas(session, 2)
        for version in range(5, 10):
            session.ask(JOIN_GROUP, version, join(version, "static", **name), note="comes back")
            beat = {**heartbeat("static", member, generation), **name}
            session.ask(HEARTBEAT, 4, beat, note="the old one")
            session.ask(DESCRIBE_GROUPS, 5, {"groups": ["static"]})
        demand_replicas(session, 1)
        session.ask(JOIN_GROUP, 5, join(5, "static", **name), note="comes back again")
        session.ask(DESCRIBE_GROUPS, 5, {"groups": ["static"]})

    loaded_pair.compare(script)


def fill(broker: KafkaBroker | BrokerProcess) -> None:
    """Many commits of one group behind what the broker wrote before it stopped."""
    (path,) = broker.home.glob("**/__consumer_offsets-0/00000000000000000000.log")
    data = path.read_bytes()
    (*_, (_, last)) = batches.iter_batches(data)
    record = batches.Record(
        0,
        last.max_timestamp,
        encode_offset_key("busy", "group-offsets", 0),
        encode_offset_value(OffsetValue(offset=7, commit_timestamp_ms=last.max_timestamp)),
        [],
    )
    commits = batches.encode_batch([record] * RECORDS_PER_BATCH)
    with path.open("ab") as file:
        for number in range(KAFKA_BATCH_COUNT if isinstance(broker, KafkaBroker) else BATCH_COUNT):
            first = last.next_offset + number * RECORDS_PER_BATCH
            batches.set_base_offset_and_epoch(commits, 0, first, last.leader_epoch)
            file.write(commits)


def ask_while_loading(session: Session) -> None:
    """What a coordinator that knows nothing yet answers, and what it does not need its groups for."""
    for version in (1, 2, 7, 9):
        session.ask(OFFSET_COMMIT, version, offset_commit("busy", 9))
    for version in (1, 5, 7):
        session.ask(OFFSET_FETCH, version, {"group_id": "busy", "topics": WANTED})
    for version in (8, 9):
        session.ask(OFFSET_FETCH, version, {"groups": [{"group_id": "busy", "topics": WANTED}]})
    for version in (0, 5, 9):
        session.ask(JOIN_GROUP, version, join(version, "busy"))
    session.ask(HEARTBEAT, 4, heartbeat("busy", "m", 1))
    session.ask(SYNC_GROUP, 5, sync(5, "busy", "m", 1))
    session.ask(LEAVE_GROUP, 2, {"group_id": "busy", "member_id": "m"})
    session.ask(LEAVE_GROUP, 5, {"group_id": "busy", "members": [{"member_id": "m"}]})
    session.ask(DESCRIBE_GROUPS, 5, {"groups": ["busy"]})
    session.ask(LIST_GROUPS, 4)
    session.ask(DELETE_GROUPS, 2, {"groups_names": ["busy"]})
    topics = [{"name": "group-offsets", "partitions": [{"partition_index": 0}]}]
    session.ask(OFFSET_DELETE, 0, {"group_id": "busy", "topics": topics})
    session.ask(FIND_COORDINATOR, 4, {"coordinator_keys": ["busy"]})


def knows_the_topic(session: Session) -> bool:
    message = {"topics": [{"name": "group-offsets"}], "allow_auto_topic_creation": False}
    return bool(session.look(METADATA, 5, message)["topics"][0]["error_code"] == 0)


@pytest.mark.acceptance
def test_requests_while_groups_are_loaded(loaded_pair: Pair) -> None:
    pair = loaded_pair

    def before(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        await_coordinator(session, "busy")
        session.ask(OFFSET_COMMIT, 7, offset_commit("busy", 1))

    with ExitStack() as stack:

        def start_anew(session: Session) -> Session:
            """A connection to the broker, which was stopped and has much to load."""
            broker = pair.kafka if session._address == pair.kafka.address else pair.headrace
            broker.stop()
            fill(broker)
            if broker is pair.kafka:
                pair.kafka.start()
                pair.kafka.wait_until_serving()
                return session.another()
            config = str(broker.home / "server.properties")
            process = ForegroundProcess(["headrace.broker.command", "--config", config], broker.log)
            stack.callback(process.end)
            return session.another(process.addresses[0])

        def after(old: Session) -> None:
            session = start_anew(old)

            def error() -> int:
                answer = session.look(OFFSET_FETCH, 5, {"group_id": "busy", "topics": WANTED})
                return int(answer["error_code"])

            session.ask(INIT_PRODUCER_ID, 4, IDEMPOTENT)
            while error() == NOT_COORDINATOR or not knows_the_topic(session):
                pass
            ask_while_loading(session)
            assert error() == LOADING, "nothing was loading any more: write more commits"
            eventually(lambda: error() != LOADING, timeout_s=ANSWER_SECONDS_MAX, what="the end of loading")
            session.ask(OFFSET_FETCH, 7, {"group_id": "busy", "topics": WANTED}, note="loaded")
            session.close()

        pair.compare(before)
        pair.compare(after)
