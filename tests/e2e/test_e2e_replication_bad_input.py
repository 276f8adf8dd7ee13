"""A broker beside one that answers nonsense, beside znodes that nobody wrote, and asked by who has no right to: it goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from kazoo.client import KazooClient
from processes import BrokerProcess, eventually
from raw_client import RawClient, produce
from scripted_replica import BROKER_ID, Message, Question, ScriptedReplica, records_of
from zookeeper_process import ZooKeeperProcess

from headrace.broker.errors import ErrorCode

OWN_ID, NOBODY = 1, 7
METADATA, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, ALTER_PARTITION = 3, 45, 46, 56
GOOD = records_of((0, 0, 0))
FIRST = Question(0, 0, -1)
# What is wrong is told once, and once more when something else is.
LINES_MAX = 2
SETTINGS = {
    "default.replication.factor": "1",
    "zookeeper.session.timeout.ms": "3000",
    "replica.socket.timeout.ms": "1000",
    "replica.fetch.backoff.ms": "100",
    # Replica 2 never fetches, and stays in sync all the same.
    "replica.lag.time.max.ms": "600000",
}


class Neighbours:
    """Broker 1, which is controller, and the script, which is registered as broker 2 and leads what it is named first for."""

    def __init__(self, zookeeper: ZooKeeperProcess, broker: BrokerProcess, other: ScriptedReplica) -> None:
        self.broker, self.other = broker, other
        self.znodes = KazooClient(zookeeper.address)
        self.znodes.start()
        host, port = other.address
        registration = {
            "version": 5,
            "host": host,
            "port": port,
            "jmx_port": -1,
            "timestamp": "1700000000000",
            "endpoints": [f"PLAINTEXT://{host}:{port}"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "features": {},
        }
        self.znodes.create(
            f"/brokers/ids/{BROKER_ID}", json.dumps(registration).encode(), ephemeral=True, makepath=True
        )
        self.client = RawClient(broker)  # type: ignore[arg-type]
        eventually(lambda: self.lives(BROKER_ID), what="two brokers")

    def lives(self, number: int) -> bool:
        told = self.client.ask(METADATA, 5, {"topics": [], "allow_auto_topic_creation": False})
        return number in [b["node_id"] for b in told["brokers"]]

    def create(self, topic: str, partitions: dict[str, Any]) -> UUID:
        """By its znode, as every controller takes it."""
        topic_id = uuid4()
        assignment = {
            "version": 3,
            "topic_id": base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode(),
            "partitions": partitions,
            "adding_replicas": {},
            "removing_replicas": {},
        }
        self.znodes.create(f"/brokers/topics/{topic}", json.dumps(assignment).encode())
        return topic_id

    def leader(self, topic: str, partition: int = 0) -> int:
        told = self.client.ask(METADATA, 5, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
        found = {p["partition_index"]: p["leader_id"] for p in told["topics"][0]["partitions"]}
        return int(found.get(partition, -1))

    def state(self, topic: str, partition: int = 0) -> Message:
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        found: Message = json.loads(self.znodes.get(path)[0])
        return found

    def epoch_of(self, number: int) -> int:
        return int(self.znodes.get(f"/brokers/ids/{number}")[1].czxid)

    def log_lines(self, *words: str, since: int = 0) -> list[str]:
        """The lines of the broker's log with these words, behind so many bytes."""
        lines = self.broker.log.read_bytes()[since:].decode().splitlines()
        return [line for line in lines if all(word in line for word in words)]


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    home = tmp_path_factory.mktemp("neighbours")
    zookeeper = ZooKeeperProcess(home / "zookeeper")
    broker = BrokerProcess(home / "broker", broker_id=OWN_ID, zookeeper=zookeeper.address, set=SETTINGS)
    with ScriptedReplica() as other:
        found = Neighbours(zookeeper, broker, other)
        found.create("beside", {"0": [OWN_ID]})
        eventually(lambda: found.leader("beside") == OWN_ID, what="a leader of the topic beside")
        yield found
        assert broker.stop() == 0
        found.znodes.stop()
        found.znodes.close()
    zookeeper.end()


def flipped(data: bytes, place: int, bits: int = 0x80) -> bytes:
    return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]


Spoil = Callable[[bytes], bytes | None]


@pytest.mark.parametrize(
    ("answer", "spoil"),
    [
        pytest.param({"records": flipped(GOOD, 40)}, bytes, id="a bad checksum"),
        pytest.param({"records": flipped(GOOD, 0)}, bytes, id="a negative offset"),
        pytest.param({"records": GOOD + GOOD}, bytes, id="offsets again"),
        pytest.param({"records": records_of((9, 9, 9))}, bytes, id="an epoch to come"),
        pytest.param({"records": b"no batch at all" * 9}, bytes, id="no batch"),
        pytest.param(
            {"diverging_epoch": {"epoch": 5, "end_offset": 1000}}, bytes, id="a parting beyond the end"
        ),
        pytest.param({"error_code": 999}, bytes, id="an error that nobody knows"),
        pytest.param({}, lambda _: b"\x7f\xff\xff\xff" + bytes(1000), id="a huge answer"),
        pytest.param({}, lambda reply: reply[:4] + bytes(4) + reply[8:], id="the answer to another request"),
        pytest.param({}, lambda reply: reply[:12] + b"\xff" * (len(reply) - 12), id="noise"),
        pytest.param({}, lambda _: b"", id="no answer"),
        pytest.param({}, lambda _: None, id="a closed connection"),
    ],
)
def test_a_leader_that_answers_nonsense_is_followed_once_it_answers(
    neighbours: Neighbours, answer: Message, spoil: Spoil, request: pytest.FixtureRequest
) -> None:
    other = neighbours.other
    topic = f"followed-{request.node.callspec.id.replace(' ', '-')}"
    began = neighbours.broker.log.stat().st_size
    other.asked, other.requests_count = [], 0
    other.answers, other.spoil = {FIRST: answer}, spoil
    other.topic_id = neighbours.create(topic, {"0": [BROKER_ID, OWN_ID]})
    try:
        eventually(lambda: other.requests_count > 2, what="a follower that asks again")
        assert produce(neighbours.client, "beside", b"meanwhile")["error_code"] == ErrorCode.NONE
        kept = [question.offset for question in other.asked]
        assert set(kept) <= {0, 3}, "batches are appended whole, and only good ones"
    finally:
        other.answers, other.spoil = {FIRST: {"records": GOOD}}, bytes
    end = Question(0, 3, 0)
    eventually(lambda: other.asked[-1:] == [end], what="a follower with the leader's log")
    told = neighbours.log_lines(" level=warning ", since=began)
    assert 1 <= len(told) <= LINES_MAX, told
    assert neighbours.leader(topic) == BROKER_ID
    assert not neighbours.log_lines("failed", "Traceback")
    # No more of it: later cases have the script to themselves.
    neighbours.znodes.create(f"/admin/delete_topics/{topic}", makepath=True)


def test_proposals_and_moves_of_who_has_no_right_to_change_nothing(neighbours: Neighbours) -> None:
    """All in the name of broker 2, which is alive and in sync, of a partition that broker 1 leads."""
    topic_id = neighbours.create("led", {"0": [OWN_ID, BROKER_ID]})
    eventually(lambda: neighbours.leader("led") == OWN_ID, what="a leader")
    before = neighbours.state("led")
    version = neighbours.znodes.get("/brokers/topics/led/partitions/0/state")[1].version
    own, others = neighbours.epoch_of(OWN_ID), neighbours.epoch_of(BROKER_ID)

    def proposed(broker: int, epoch: int, isr: list[int], **changes: int) -> tuple[int, int | None]:
        """What a proposal of that broker comes to: the request's error and the partition's."""
        partition = {
            "partition_index": 0,
            "leader_epoch": before["leader_epoch"],
            "partition_epoch": version,
            "leader_recovery_state": 0,
            "new_isr_with_epochs": [{"broker_id": n, "broker_epoch": -1} for n in isr],
            **changes,
        }
        topics = [{"topic_id": topic_id, "partitions": [partition]}]
        message = {"broker_id": broker, "broker_epoch": epoch, "topics": topics}
        answer = neighbours.client.ask(ALTER_PARTITION, 3, message)
        return answer["error_code"], next(
            (p["error_code"] for t in answer["topics"] for p in t["partitions"]), None
        )

    leader_epoch = before["leader_epoch"]
    assert proposed(BROKER_ID, others, [BROKER_ID]) == (0, ErrorCode.INVALID_REQUEST)
    assert proposed(BROKER_ID, others, [OWN_ID]) == (0, ErrorCode.INVALID_REQUEST)
    assert proposed(OWN_ID, own - 1, [OWN_ID]) == (ErrorCode.STALE_BROKER_EPOCH, None)
    assert proposed(OWN_ID, own + 1, [OWN_ID]) == (ErrorCode.STALE_BROKER_EPOCH, None)
    assert proposed(NOBODY, own, [OWN_ID]) == (ErrorCode.STALE_BROKER_EPOCH, None)
    assert proposed(OWN_ID, own, [OWN_ID], leader_epoch=leader_epoch - 1) == (
        0,
        ErrorCode.FENCED_LEADER_EPOCH,
    )
    assert proposed(OWN_ID, own, [OWN_ID], leader_epoch=leader_epoch + 1) == (0, ErrorCode.NOT_CONTROLLER)
    assert proposed(OWN_ID, own, [OWN_ID], partition_epoch=version + 1) == (0, ErrorCode.NOT_CONTROLLER)
    assert proposed(OWN_ID, own, [BROKER_ID]) == (0, ErrorCode.INVALID_REQUEST)
    assert proposed(OWN_ID, own, [OWN_ID, OWN_ID]) == (0, ErrorCode.INVALID_REQUEST)
    assert proposed(OWN_ID, own, [OWN_ID, NOBODY]) == (0, ErrorCode.INVALID_REQUEST)
    for replicas in ([NOBODY], [OWN_ID, OWN_ID], [], [-1], [OWN_ID, NOBODY], [2**31 - 1]):
        partition = {"partition_index": 0, "replicas": replicas}
        message = {"timeout_ms": 5000, "topics": [{"name": "led", "partitions": [partition]}]}
        answer = neighbours.client.ask(ALTER_REASSIGNMENTS, 0, message)
        found = answer["responses"][0]["partitions"][0]["error_code"]
        assert found == ErrorCode.INVALID_REPLICA_ASSIGNMENT, replicas
    assert neighbours.client.ask(LIST_REASSIGNMENTS, 0, {"topics": None})["topics"] == []
    assert neighbours.state("led") == before


def test_znodes_that_nobody_wrote_keep_no_other_topic_from_its_leader(neighbours: Neighbours) -> None:
    """They are found while the controller is in office, and once more by its successor."""
    neighbours.znodes.create("/brokers/topics/broken", b"no JSON")
    neighbours.znodes.create("/brokers/topics/listless", b'{"version":3,"partitions":7}')
    neighbours.create(
        "impossible", {"0": [], "1": [OWN_ID, OWN_ID], "2": [-5], "3": [NOBODY], "4": [OWN_ID], "x": [OWN_ID]}
    )
    neighbours.create("stateless", {"0": [OWN_ID]})
    eventually(lambda: neighbours.leader("stateless") == OWN_ID, what="a leader")
    neighbours.znodes.set("/brokers/topics/stateless/partitions/0/state", b"no JSON")
    neighbours.create("sound-0", {"0": [OWN_ID]})
    eventually(lambda: neighbours.leader("sound-0") == OWN_ID, what="a leader beside them")
    neighbours.znodes.delete("/controller")
    eventually(lambda: neighbours.znodes.exists("/controller"), what="a controller")
    neighbours.create("sound-1", {"0": [OWN_ID], "1": [BROKER_ID, OWN_ID]})
    eventually(
        lambda: neighbours.leader("sound-1", 1) == BROKER_ID, what="a leader under the next controller"
    )
    for topic in ("beside", "sound-0", "sound-1"):
        assert produce(neighbours.client, topic, b"all goes on")["error_code"] == ErrorCode.NONE
    for path in ("/brokers/topics/broken", "/brokers/topics/listless"):
        assert 1 <= len(neighbours.log_lines("a znode is passed over", path)) <= 4
