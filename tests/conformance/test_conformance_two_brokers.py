"""Two brokers of each kind: a listener that only one has, preferred leaders by ZooKeeper, what brokers ask the controller."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from kazoo.client import KazooClient
from pairs import LEFT_EPOCH, BrokerPair, leave_topic, running_broker_pairs
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
from zookeeper_process import ZooKeeperProcess

pytestmark = pytest.mark.acceptance

ALTER_USER_SCRAM_CREDENTIALS, ALTER_PARTITION, UPDATE_FEATURES, ALLOCATE_PRODUCER_IDS = 51, 56, 57, 67
NOBODY = 7
PROPOSALS = {"proposals": "AAAAAAAAQACAAAAAAAAAFA"}
PRODUCER_IDS = "/latest_producer_id_block"
NOT_CONTROLLER = 41
WISH = "/admin/preferred_replica_election"
TOPICS = {
    "left-1": "AAAAAAAAQACAAAAAAAAAEQ",
    "left-2": "AAAAAAAAQACAAAAAAAAAEg",
    "left-3": "AAAAAAAAQACAAAAAAAAAEw",
}


@pytest.fixture(scope="module")
def brokers(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerPair]:
    """Brokers that leave preferred leaders to those who ask for them."""
    settings = {
        "auto.leader.rebalance.enable": "false",
        "auto.create.topics.enable": "false",
        "controlled.shutdown.enable": "false",
    }
    with running_broker_pairs(kafka_jars, zookeeper, tmp_path_factory.mktemp("brokers"), settings) as both:
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


def controllers(session: Session) -> tuple[Session, Session]:
    """Sessions with the broker that is controller and with the other one, which names it, too."""
    found: list[Session] = []

    def are_there() -> bool:
        known = session.look(METADATA, 5, {"topics": [], "allow_auto_topic_creation": False})
        ports = {b["node_id"]: (b["host"], b["port"]) for b in known["brokers"]}
        controller_id = known["controller_id"]
        if controller_id not in ports or len(ports) < 2:
            return False
        asked = [session.another(ports.pop(controller_id)), session.another(*ports.values())]
        if asked[0].look(UPDATE_FEATURES, 1, {"feature_updates": []})["error_code"] == NOT_CONTROLLER:
            return False
        found.extend(asked)
        return True

    eventually(are_there, what="a controller")
    return found[0], found[1]


def broker_epoch(znodes: KazooClient, chroot: str, broker_id: int) -> int:
    return int(znodes.get(f"{chroot}/brokers/ids/{broker_id}")[1].czxid)


def test_in_sync_replicas_that_a_leader_proposes(brokers: BrokerPair) -> None:
    """As broker 1 would ask, which leads both partitions and knows nothing of it."""
    znodes = brokers.first.znodes
    ((topic, topic_id),) = PROPOSALS.items()
    for chroot in ("/kafka", "/headrace"):
        in_sync = {0: [1, 2], 1: [1]}
        leave_topic(znodes, chroot, topic, topic_id, {0: [1, 2], 1: [1, NOBODY]}, in_sync=in_sync)
        znodes.delete(f"{chroot}/controller")

    def script(session: Session) -> None:
        chroot = "/kafka" if session._address == brokers.first.kafka.address else "/headrace"
        known_topic = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}

        def is_led() -> bool:
            partitions = session.look(METADATA, 5, known_topic)["topics"][0]["partitions"]
            return [p["leader_id"] for p in partitions] == [1, 1]

        eventually(is_led, what=topic)
        controller, other = controllers(session)
        own_epoch = broker_epoch(znodes, chroot, 1)

        def propose(
            version: int,
            isr: Sequence[int],
            partition_epoch: int,
            *,
            of: tuple[str, int] = (topic, 0),
            leader_epoch: int = LEFT_EPOCH,
            recovery: int = 0,
            to: Session = controller,
            broker: tuple[int, int] = (1, own_epoch),
        ) -> None:
            name, number = of
            ids = {topic: UUID(bytes=urlsafe_b64decode(f"{topic_id}=="))}
            partition: Message = {
                "partition_index": number,
                "leader_epoch": leader_epoch,
                "partition_epoch": partition_epoch,
            }
            if version >= 1:
                partition["leader_recovery_state"] = recovery
            if version >= 3:
                partition["new_isr_with_epochs"] = [{"broker_id": b, "broker_epoch": -1} for b in isr]
            else:
                partition["new_isr"] = list(isr)
            named = {"topic_id": ids.get(name, UUID(int=77))} if version >= 2 else {"topic_name": name}
            message = {
                "broker_id": broker[0],
                "broker_epoch": broker[1],
                "topics": [{**named, "partitions": [partition]}],
            }
            session.note(
                f"{isr} upon {partition_epoch} of {of} in version {version}",
                session.comparable(to.look(ALTER_PARTITION, version, message, noted=True)),
            )

        for version in range(4):
            known = 2 * version
            propose(version, [1], known, broker=(1, own_epoch - 1))
            propose(version, [1], known, broker=(1, own_epoch + 1))
            propose(version, [1], known, broker=(NOBODY, own_epoch))
            propose(version, [1], known, of=("nowhere", 0))
            propose(version, [1], known, of=(topic, 9))
            propose(version, [1], known, leader_epoch=LEFT_EPOCH - 1)
            propose(version, [1], known, leader_epoch=LEFT_EPOCH + 1)
            propose(version, [1], known + 1)
            propose(version, [1, NOBODY], 0, of=(topic, 1))
            propose(version, [1, 2], known)
            propose(version, [1], known, to=other)
            propose(version, [1], known)
            propose(version, [1], known)
            propose(version, [1, 2], known)
            if version:
                propose(version, [1, 2], known + 1, recovery=1)
                propose(version, [1], known + 1, recovery=1)
            propose(version, [1, 2], known + 1)
        for partition in range(2):
            state, _ = znodes.get(f"{chroot}/brokers/topics/{topic}/partitions/{partition}/state")
            found = json.loads(state)
            del found["controller_epoch"]
            session.note(f"{topic}-{partition}", found)
        controller.close()
        other.close()

    brokers.first.compare(script)


def test_producer_ids_that_the_controller_gives_out(brokers: BrokerPair) -> None:
    znodes = brokers.first.znodes

    def script(session: Session) -> None:
        chroot = "/kafka" if session._address == brokers.first.kafka.address else "/headrace"
        controller, other = controllers(session)
        before, _ = znodes.get(f"{chroot}{PRODUCER_IDS}")
        own_epoch = broker_epoch(znodes, chroot, 2)

        def allocate(to: Session, broker_id: int = 2, epoch: int = own_epoch) -> None:
            message = {"broker_id": broker_id, "broker_epoch": epoch}
            answer = to.look(ALLOCATE_PRODUCER_IDS, 0, message, noted=True)
            session.note("allocated", session.comparable(answer))

        newest = {"version": 1, "broker": 1, "block_start": "70000", "block_end": "70999"}
        znodes.set(f"{chroot}{PRODUCER_IDS}", json.dumps(newest).encode())
        allocate(controller)
        allocate(controller)
        session.note("block", json.loads(znodes.get(f"{chroot}{PRODUCER_IDS}")[0]))
        allocate(controller, epoch=own_epoch - 1)
        allocate(controller, epoch=own_epoch + 1)
        allocate(controller, broker_id=NOBODY)
        allocate(other)
        last = {**newest, "block_start": str(2**63 - 1000), "block_end": str(2**63 - 1)}
        for broken in (json.dumps(last).encode(), b"no JSON", b"{}"):
            znodes.set(f"{chroot}{PRODUCER_IDS}", broken)
            allocate(controller)
        znodes.set(f"{chroot}{PRODUCER_IDS}", before)
        controller.close()
        other.close()

    brokers.first.compare(script)


def test_features_that_nobody_supports(brokers: BrokerPair) -> None:
    def script(session: Session) -> None:
        controller, other = controllers(session)

        def update(to: Session, version: int, *updates: Message) -> None:
            message = {"feature_updates": list(updates)}
            answer = to.look(UPDATE_FEATURES, version, message, noted=True)
            session.note(f"updated {updates} in version {version}", session.comparable(answer))

        for version in range(2):
            update(controller, version)
            for feature in ("metadata.version", "kraft.version", "nothing", ""):
                for level in (-1, 0, 1, 21):
                    kinds = [{"upgrade_type": n} for n in range(5)]
                    for kind in kinds if version else [{"allow_downgrade": False}, {"allow_downgrade": True}]:
                        asked: Message = {"feature": feature, "max_version_level": level, **kind}
                        update(controller, version, asked)
            update(other, version, {"feature": "nothing", "max_version_level": 1})
        controller.close()
        other.close()

    brokers.first.compare(script)


def test_credentials_are_changed_by_the_controller_alone(brokers: BrokerPair) -> None:
    def script(session: Session) -> None:
        known = session.look(METADATA, 5, {"topics": [], "allow_auto_topic_creation": False})
        other = next(b for b in known["brokers"] if b["node_id"] != known["controller_id"])
        client = session.another((other["host"], other["port"]))
        deletions = [{"name": "alice", "mechanism": 1}, {"name": "", "mechanism": 9}]
        client.ask(ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": deletions, "upsertions": []})
        client.close()

    brokers.first.compare(script)
