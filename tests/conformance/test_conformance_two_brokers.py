"""Two brokers of each kind without replication: a listener that only one has, and preferred leaders by ZooKeeper."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pairs import BrokerPair, leave_topic, running_broker_pairs
from processes import eventually
from sessions import (
    CREATE_TOPICS,
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    Message,
    Session,
    batch,
    produce_message,
)

NOBODY = 7
NOT_CONTROLLER = 41
WISH = "/admin/preferred_replica_election"
TOPICS = {
    "left-1": "AAAAAAAAQACAAAAAAAAAEQ",
    "left-2": "AAAAAAAAQACAAAAAAAAAEg",
    "left-3": "AAAAAAAAQACAAAAAAAAAEw",
}


@pytest.fixture(scope="module")
def brokers(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    """Brokers that leave preferred leaders to those who ask for them."""
    settings = {
        "auto.leader.rebalance.enable": "false",
        "auto.create.topics.enable": "false",
        "controlled.shutdown.enable": "false",
    }
    with running_broker_pairs(kafka_jars, tmp_path_factory.mktemp("brokers"), settings) as both:
        yield both


def create_spread(session: Session, name: str, partitions: int) -> None:
    """A topic whose partitions are on both brokers in turn, once this broker knows all of their leaders."""
    assignments = [{"partition_index": n, "broker_ids": [1 + n % 2]} for n in range(partitions)]
    topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assignments}
    wish: Message = {"topics": [topic], "timeout_ms": 10_000}

    def is_known() -> bool:
        known = session.look(METADATA, 5, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
        found: list[Message] = known["topics"][0]["partitions"]
        return [p["leader_id"] for p in sorted(found, key=lambda p: p["partition_index"])] == [
            1 + n % 2 for n in range(partitions)
        ]

    def is_there() -> bool:
        # Either broker may be controller; those who ask the other one go on from its metadata.
        known = session.look(METADATA, 5, {"topics": [], "allow_auto_topic_creation": False})
        ports = {b["node_id"]: (b["host"], b["port"]) for b in known["brokers"]}
        if known["controller_id"] not in ports or len(ports) < 2:
            return False
        controller = session.another(ports[known["controller_id"]])
        controller.look(CREATE_TOPICS, 5, wish)
        controller.close()
        return is_known()

    eventually(is_there, what=name)


def test_a_leader_without_the_listener_that_a_client_came_by(brokers: BrokerPair) -> None:
    def script(session: Session) -> None:
        create_spread(session, "spread", 2)
        create_spread(session, "__consumer_offsets", 5)
        outside = session.another(brokers.extra[session._address])
        for version in range(13):
            allowed = {"allow_auto_topic_creation": False} if version >= 4 else {}
            outside.ask(METADATA, version, {"topics": [{"name": "spread"}], **allowed})
        for group in ("a", "b", "c", "d", "e"):
            for version in range(7):
                key = {"coordinator_keys": [group]} if version >= 4 else {"key": group}
                outside.ask(FIND_COORDINATOR, version, key, note=group)
        for version in range(2):
            outside.ask(DESCRIBE_CLUSTER, version)
        for version in (9, 10, 11):
            outside.ask(PRODUCE, version, produce_message("spread", batch(b"x"), partition=1))
        wanted = {"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1000}
        topic_id = outside.look(METADATA, 12, {"topics": [{"name": "spread"}]})["topics"][0]["topic_id"]
        for version in (12, 16, 17):
            topic = {"topic": "spread"} if version < 13 else {"topic_id": topic_id}
            outside.ask(FETCH, version, {"max_wait_ms": 0, "topics": [{**topic, "partitions": [wanted]}]})
        outside.close()

    brokers.first.compare(script)


def test_preferred_leaders_that_a_znode_asks_for(brokers: BrokerPair) -> None:
    """Partition 0 gets its preferred leader back, that of 1 is dead, 2 has it already; what nobody understands goes."""
    znodes = brokers.first.znodes
    for chroot in ("/kafka", "/headrace"):
        for topic, topic_id in TOPICS.items():
            replicas = {0: [2, 1], 1: [NOBODY, 1], 2: [1, 2]}
            leave_topic(znodes, chroot, topic, topic_id, replicas, in_sync={0: [1, 2], 1: [1], 2: [1, 2]})
        znodes.delete(f"{chroot}/controller")

    def script(session: Session) -> None:
        chroot = "/kafka" if session._address == brokers.first.kafka.address else "/headrace"
        await_leaders(session, chroot, dict.fromkeys(TOPICS, 1))
        wish_for(znodes, chroot, partitions_of("left-1"))
        await_leaders(session, chroot, {"left-1": 2, "left-2": 1})
        wish_for(znodes, chroot, b"no JSON")
        wish_for(znodes, chroot, b'{"version":1,"partitions":[]}')
        wish_for(znodes, chroot, partitions_of("nowhere"))
        wish_for(znodes, chroot, partitions_of("left-2"))
        await_leaders(session, chroot, {"left-1": 2, "left-2": 2, "left-3": 1})
        depose(session, chroot)
        znodes.create(f"{chroot}{WISH}", partitions_of("left-3"))
        znodes.delete(f"{chroot}/controller")
        await_no_wish(znodes, chroot)
        await_leaders(session, chroot, dict.fromkeys(TOPICS, 2))
        for topic in TOPICS:
            # Either broker may be controller by now.
            found = session.look(METADATA, 12, {"topics": [{"name": topic}]}, noted=True)
            session.note(topic, session.comparable(found["topics"]))
            for partition in range(3):
                state, _ = znodes.get(f"{chroot}/brokers/topics/{topic}/partitions/{partition}/state")
                session.note(f"{topic}-{partition}", json.loads(state))

    def depose(session: Session, chroot: str) -> None:
        """Somebody who does nothing is controller, and both brokers know."""
        path = f"{chroot}/controller"
        change = znodes.transaction()
        change.delete(path)
        office = {**json.loads(znodes.get(path)[0]), "brokerid": NOBODY}
        change.create(path, json.dumps(office).encode(), ephemeral=True)
        change.commit()
        pairs = (brokers.first, brokers.second)
        addresses = [p.kafka.address if chroot == "/kafka" else p.headrace.addresses[0] for p in pairs]
        topic = {"name": "any", "num_partitions": 1, "replication_factor": 1}
        wish: Message = {"topics": [topic], "timeout_ms": 1000, "validate_only": True}

        def has_resigned(address: tuple[str, int]) -> bool:
            answer = session.another(address).look(CREATE_TOPICS, 5, wish)
            return bool(answer["topics"][0]["error_code"] == NOT_CONTROLLER)

        eventually(lambda: all(map(has_resigned, addresses)), what="a cluster without a controller")

    def await_leaders(session: Session, chroot: str, leaders: dict[str, int]) -> None:
        """Wait until this broker says who leads partition 0, and note what ZooKeeper says."""

        def leader_of(topic: str) -> int:
            message = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
            found: list[Message] = session.look(METADATA, 5, message)["topics"][0]["partitions"]
            return next((p["leader_id"] for p in found if p["partition_index"] == 0), -1)

        eventually(lambda: {t: leader_of(t) for t in leaders} == leaders, what=f"{leaders} in {chroot}")
        session.note("leaders", leaders)

    brokers.first.compare(script)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_topics_that_old_tools_make_get_ids(brokers: BrokerPair, version: int) -> None:
    """A topic znode without an id, one of whose partitions is on a broker that is not there."""
    znodes = brokers.first.znodes
    name = f"nameless-{version}"
    reassigned: dict[str, object] = {"adding_replicas": {}, "removing_replicas": {}} if version > 1 else {}
    topic = {"version": version, "partitions": {"0": [1], "1": [2], "2": [NOBODY]}, **reassigned}

    def script(session: Session) -> None:
        chroot = "/kafka" if session._address == brokers.first.kafka.address else "/headrace"
        path = f"{chroot}/brokers/topics/{name}"
        znodes.create(f"{chroot}/config/topics/{name}", b'{"version":1,"config":{}}')
        znodes.create(path, json.dumps(topic).encode())

        def leaders() -> list[int]:
            found = session.look(METADATA, 12, {"topics": [{"name": name}]})["topics"][0]["partitions"]
            return sorted(partition["leader_id"] for partition in found)

        eventually(lambda: leaders() == [1, 2], what=f"{name} in {chroot}")
        found = session.look(METADATA, 12, {"topics": [{"name": name}]}, noted=True)["topics"]
        session.note(name, session.comparable(found))
        stored = json.loads(znodes.get(path)[0])
        padding = "=" * (-len(stored["topic_id"]) % 4)
        assert found[0]["topic_id"].bytes == urlsafe_b64decode(stored.pop("topic_id") + padding)
        session.note(path.removeprefix(chroot), stored)

    brokers.first.compare(script)


def partitions_of(topic: str) -> bytes:
    partitions = [{"topic": topic, "partition": number} for number in (0, 1, 2, 9)]
    return json.dumps({"version": 1, "partitions": partitions}).encode()


def wish_for(znodes: KazooClient, chroot: str, wish: bytes) -> None:
    """Ask for preferred leaders, and wait until the wish is gone: it is fulfilled then."""
    znodes.create(f"{chroot}{WISH}", wish)
    await_no_wish(znodes, chroot)


def await_no_wish(znodes: KazooClient, chroot: str) -> None:
    eventually(lambda: znodes.exists(f"{chroot}{WISH}") is None, what="the end of the wish")
