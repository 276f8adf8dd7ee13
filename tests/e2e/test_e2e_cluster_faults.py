"""Several brokers and one ZooKeeper: they spread partitions, and each may die, sleep or return."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import headrace
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from processes import BrokerProcess, eventually, free_port
from zookeeper_process import ZooKeeperProcess

from headrace.broker.wire import frames
from headrace.broker.wire.api import k03_metadata

SESSION_TIMEOUT_MS = 3000


class Cluster:
    """Brokers on addresses that they keep over restarts, and a look into their ZooKeeper."""

    def __init__(self, home: Path, zookeeper: str) -> None:
        self.home = home
        self.zookeeper = zookeeper
        self.brokers: dict[int, BrokerProcess] = {}
        self._ports: dict[int, int] = {}
        address, _, chroot = zookeeper.partition("/")
        self.znodes = KazooClient(address)
        self.znodes.start()
        self.znodes.ensure_path(chroot)
        self.znodes.chroot = f"/{chroot}"

    def start(self, broker_id: int) -> BrokerProcess:
        port = self._ports.setdefault(broker_id, free_port())
        self.brokers[broker_id] = BrokerProcess(
            self.home / f"broker-{broker_id}",
            broker_id=broker_id,
            zookeeper=self.zookeeper,
            set={
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
                "offsets.topic.num.partitions": "3",
            },
        )
        return self.brokers[broker_id]

    def address(self, broker_id: int) -> tuple[str, int]:
        return "127.0.0.1", self._ports[broker_id]

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.process.send_signal(signal.SIGCONT)
            broker.end()
        self.znodes.stop()
        self.znodes.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(b.bootstrap for b in self.brokers.values() if b.process.poll() is None)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int, replicas: int = 1, **config: str) -> None:
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic].result(30)

    def delete(self, topic: str) -> None:
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(30)

    def leaders(self, topic: str, through: int) -> dict[int, int]:
        """Partition → leader as one broker tells it."""
        bootstrap = self.brokers[through].bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        return {p: m.leader for p, m in admin.list_topics(topic, timeout=10).topics[topic].partitions.items()}

    def told_controller(self, through: int) -> int:
        """The controller as one broker tells it, which is a moment after ZooKeeper does."""
        admin = AdminClient({"bootstrap.servers": self.brokers[through].bootstrap, "log_level": 0})
        controller: int = admin.list_topics(timeout=10).controller_id
        return controller

    def state(self, topic: str, partition: int) -> dict[str, Any]:
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        state: dict[str, Any] = json.loads(self.znodes.retry(self.znodes.get, path)[0])
        return state

    def controller(self) -> int | None:
        try:
            return int(json.loads(self.znodes.retry(self.znodes.get, "/controller")[0])["brokerid"])
        except NoNodeError:
            return None

    def its_controller(self) -> int:
        """The controller, which there must be."""
        controller = self.controller()
        assert controller is not None
        return controller

    def produce(self, topic: str, partition: int, value: bytes) -> None:
        """Acknowledged, or the test fails."""
        errors: list[object] = []
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "message.timeout.ms": 15_000, "log_level": 0}
        )
        producer.produce(topic, value, partition=partition, on_delivery=lambda e, _: errors.append(e))
        assert producer.flush(20) == 0
        assert errors == [None]

    def read(self, topic: str, partition: int, count: int) -> list[bytes | None]:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "reader", "log_level": 0}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, 0)])
        values = [m.value() for m in consumer.consume(count, timeout=15)]
        consumer.close()
        return values


@pytest.fixture(scope="module")
def module_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    yield process
    process.end()


@pytest.fixture
def server(module_zookeeper: ZooKeeperProcess) -> ZooKeeperProcess:
    """The ZooKeeper of all clusters here, for a test to kill; it serves when the next one begins."""
    if module_zookeeper.process.poll() is not None:
        module_zookeeper.start()
    return module_zookeeper


@pytest.fixture
def cluster(tmp_path: Path, server: ZooKeeperProcess) -> Iterator[Callable[[int], Cluster]]:
    """`cluster(n)` starts brokers 1 to n."""
    running: list[Cluster] = []

    def start(count: int) -> Cluster:
        running.append(Cluster(tmp_path, server.under_chroot(tmp_path)))
        for broker_id in range(1, count + 1):
            running[-1].start(broker_id)
        eventually(lambda: all_know(running[-1], count), what="every broker's knowledge of all others")
        return running[-1]

    yield start
    for one in running:
        one.end()


def all_know(cluster: Cluster, count: int) -> bool:
    return all(
        len(AdminClient({"bootstrap.servers": b.bootstrap, "log_level": 0}).list_topics(timeout=10).brokers)
        == count
        for b in cluster.brokers.values()
    )


def test_partitions_are_spread_evenly_and_every_broker_tells_the_same(
    cluster: Callable[[int], Cluster],
) -> None:
    three = cluster(3)
    three.create("spread", 9)
    leaders = three.leaders("spread", through=1)
    assert Counter(leaders.values()) == {1: 3, 2: 3, 3: 3}
    eventually(
        lambda: three.leaders("spread", 2) == three.leaders("spread", 3) == leaders, what="one metadata"
    )
    for partition in range(9):
        three.produce("spread", partition, b"to %d" % partition)
    assert [three.read("spread", p, 1) for p in range(9)] == [[b"to %d" % p] for p in range(9)]


def test_a_killed_broker_leaves_its_partitions_leaderless_and_leads_them_again_with_all_data(
    cluster: Callable[[int], Cluster],
) -> None:
    two = cluster(2)
    two.create("t", 2)
    leaders = two.leaders("t", through=1)
    controller = two.its_controller()
    victim = 3 - controller
    lost = next(p for p, leader in leaders.items() if leader == victim)
    two.produce("t", lost, b"before")
    first_epoch = two.state("t", lost)["leader_epoch"]
    two.brokers[victim].kill()
    eventually(lambda: two.state("t", lost)["leader"] == -1, what="the loss in ZooKeeper")
    assert two.state("t", lost)["isr"] == [victim]
    eventually(lambda: two.leaders("t", controller)[lost] == -1, what="the loss in the metadata")
    two.produce("t", 1 - lost, b"the other one goes on")
    two.start(victim)
    eventually(lambda: two.leaders("t", controller)[lost] == victim, what="the return")
    assert two.state("t", lost)["leader_epoch"] == first_epoch + 2
    two.produce("t", lost, b"after")
    assert two.read("t", lost, 2) == [b"before", b"after"]


def test_a_broker_killed_and_restarted_at_once_needs_no_session_time_out(
    cluster: Callable[[int], Cluster],
) -> None:
    one = cluster(1)
    one.create("t", 1)
    one.produce("t", 0, b"before")
    epoch = int(one.znodes.get("/controller_epoch")[0])
    one.brokers[1].kill()
    one.start(1)
    one.produce("t", 0, b"after")
    assert one.read("t", 0, 2) == [b"before", b"after"]
    assert int(one.znodes.get("/controller_epoch")[0]) == epoch + 1


def test_whom_a_restarting_broker_answers_it_tells_of_the_cluster(cluster: Callable[[int], Cluster]) -> None:
    """librdkafka takes an answer without brokers for minutes for the truth when it knows no other broker."""
    one = cluster(1)
    one.brokers[1].kill()
    starting = threading.Thread(target=one.start, args=(1,))
    starting.start()
    answer = first_metadata(one.address(1))
    starting.join()
    assert ([b["node_id"] for b in answer["brokers"]], answer["controller_id"]) == ([1], 1)


def first_metadata(address: tuple[str, int]) -> dict[str, Any]:
    """What the broker says to the first who reaches it."""
    request = k03_metadata.API.encode_request(8, {"topics": []})
    header = frames.encode_request_header(k03_metadata.API.key, 8, 0, "test")

    def connected() -> socket.socket | None:
        try:
            return socket.create_connection(address, timeout=30)
        except ConnectionRefusedError:
            return None

    while (sock := connected()) is None:
        time.sleep(0.001)
    with sock:
        sock.sendall(frames.frame(header, request))
        stream = sock.makefile("rb")
        reply = stream.read(int.from_bytes(stream.read(4), "big"))
    _, offset = frames.read_response_header(k03_metadata.API.key, 8, reply)
    return k03_metadata.API.decode_response(8, reply, offset)


def test_another_broker_takes_over_from_a_killed_controller(cluster: Callable[[int], Cluster]) -> None:
    two = cluster(2)
    old = two.its_controller()
    epoch = int(two.znodes.get("/controller_epoch")[0])
    two.brokers[old].kill()
    eventually(lambda: two.controller() == 3 - old, what="the new controller")
    assert int(two.znodes.get("/controller_epoch")[0]) == epoch + 1
    # librdkafka does not ask again whom a client without topics was told once.
    eventually(lambda: two.told_controller(3 - old) == 3 - old, what="the new controller in metadata")
    two.create("after", 2)
    assert set(two.leaders("after", through=3 - old).values()) == {3 - old}


def test_data_flows_while_zookeeper_is_away_and_topics_are_made_when_it_is_back(
    cluster: Callable[[int], Cluster], server: ZooKeeperProcess
) -> None:
    two = cluster(2)
    two.create("t", 2)
    two.produce("t", 0, b"with")
    server.kill()
    for partition in range(2):
        two.produce("t", partition, b"without")
    server.start()
    eventually(lambda: two.controller() is not None, what="a controller")
    eventually(lambda: created(two, "later"), what="a topic after ZooKeeper's return")
    assert two.read("t", 0, 2) == [b"with", b"without"]
    assert [b.process.poll() for b in two.brokers.values()] == [None, None]


def test_a_topic_asked_for_while_zookeeper_is_away_is_given_up_soon(
    cluster: Callable[[int], Cluster], server: ZooKeeperProcess
) -> None:
    one = cluster(1)
    server.kill()
    host, port = one.address(1)
    began = time.monotonic()
    done = headrace("topics", "create", "first", "--bootstrap", f"{host}:{port}")
    assert (done.returncode, time.monotonic() - began < 20) == (1, True)
    assert "ZooKeeper does not answer the brokers" in done.stderr
    server.start()
    eventually(lambda: created(one, "later"), what="a topic after ZooKeeper's return")
    assert headrace("topics", "create", "again", "--bootstrap", f"{host}:{port}").returncode == 0


def test_zookeeper_away_for_longer_than_the_session_is_survived(
    cluster: Callable[[int], Cluster], server: ZooKeeperProcess
) -> None:
    one = cluster(1)
    one.create("t", 1)
    server.kill()
    time.sleep(2 * SESSION_TIMEOUT_MS / 1000)
    log = one.home / "broker-1" / "broker.log"
    eventually(lambda: "ZooKeeper still does not answer" in log.read_text(), what="the line about the outage")
    one.produce("t", 0, b"without")
    server.start()
    eventually(lambda: created(one, "later"), what="a topic after ZooKeeper's return")
    assert one.read("t", 0, 1) == [b"without"]


def test_a_zookeeper_that_lost_its_data_is_told_of_and_no_data_is_abandoned(
    cluster: Callable[[int], Cluster],
) -> None:
    one = cluster(1)
    log = one.home / "broker-1" / "broker.log"
    one.brokers[1].process.send_signal(signal.SIGSTOP)
    eventually(lambda: one.znodes.exists("/brokers/ids/1") is None, what="the end of the session")
    one.znodes.delete("/cluster/id")
    one.brokers[1].process.send_signal(signal.SIGCONT)
    eventually(lambda: "ZooKeeper holds no cluster.id" in log.read_text(), what="the line about lost data")
    assert "check zookeeper.connect, or restore ZooKeeper's data" in log.read_text()
    assert one.brokers[1].stop() == 0
    with pytest.raises(AssertionError, match=r"check zookeeper\.connect first"):
        one.start(1)


def created(cluster: Cluster, topic: str) -> bool:
    """Whether the topic can be created, or was by an earlier try."""
    try:
        cluster.create(topic, 2)
    except Exception as error:
        return "exists" in str(error)
    return True


def test_a_broker_that_slept_through_its_session_registers_again_and_leads_again(
    cluster: Callable[[int], Cluster],
) -> None:
    two = cluster(2)
    two.create("t", 2)
    controller = two.its_controller()
    sleeper = 3 - controller
    own = next(p for p, leader in two.leaders("t", controller).items() if leader == sleeper)
    two.produce("t", own, b"before")
    two.brokers[sleeper].process.send_signal(signal.SIGSTOP)
    eventually(lambda: two.state("t", own)["leader"] == -1, what="the session's end")
    epoch = two.state("t", own)["leader_epoch"]
    two.brokers[sleeper].process.send_signal(signal.SIGCONT)
    eventually(lambda: two.state("t", own)["leader"] == sleeper, what="the new session")
    assert two.state("t", own)["leader_epoch"] == epoch + 1
    two.produce("t", own, b"after")
    assert two.read("t", own, 2) == [b"before", b"after"]


def test_a_controller_that_slept_through_its_session_is_fenced(cluster: Callable[[int], Cluster]) -> None:
    two = cluster(2)
    old = two.its_controller()
    two.brokers[old].process.send_signal(signal.SIGSTOP)
    eventually(lambda: two.controller() == 3 - old, what="the new controller")
    two.brokers[old].process.send_signal(signal.SIGCONT)
    eventually(lambda: all_know(two, 2), what="both brokers' return")
    two.create("t", 4)
    assert two.controller() == 3 - old
    assert {two.state("t", p)["controller_epoch"] for p in range(4)} == {
        int(two.znodes.get("/controller_epoch")[0])
    }


def test_a_deleted_topic_is_gone_everywhere_and_a_new_one_of_its_name_is_empty(
    cluster: Callable[[int], Cluster],
) -> None:
    two = cluster(2)
    two.create("t", 4)
    two.produce("t", 0, b"old")
    old_id = json.loads(two.znodes.get("/brokers/topics/t")[0])["topic_id"]
    two.delete("t")
    for path in ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"):
        assert two.znodes.exists(path) is None
    assert [p.name for p in two.home.glob("broker-*/logs/t-?")] == []
    two.create("t", 4)
    assert json.loads(two.znodes.get("/brokers/topics/t")[0])["topic_id"] != old_id
    two.produce("t", 0, b"new")
    assert two.read("t", 0, 1) == [b"new"]


def test_a_topic_with_a_replica_on_a_dead_broker_is_deleted_when_it_returns(
    cluster: Callable[[int], Cluster],
) -> None:
    two = cluster(2)
    two.create("t", 2)
    victim = 3 - two.its_controller()
    two.brokers[victim].kill()
    eventually(lambda: two.znodes.exists(f"/brokers/ids/{victim}") is None, what="the loss of a broker")
    two.delete("t")
    assert two.znodes.exists("/admin/delete_topics/t") is not None
    with pytest.raises(KafkaException, match="marked for deletion"):
        two.create("t", 2)
    two.start(victim)
    eventually(lambda: two.znodes.exists("/brokers/topics/t") is None, what="the end of the topic")
    assert [p.name for p in two.home.glob("broker-*/logs/t-?")] == []


def test_a_clean_stop_is_told_to_the_controller_and_ends_the_registration_at_once(
    cluster: Callable[[int], Cluster],
) -> None:
    two = cluster(2)
    leaver = 3 - two.its_controller()
    assert two.brokers[leaver].stop() == 0
    assert two.znodes.exists(f"/brokers/ids/{leaver}") is None
    assert "without the controller's consent" not in two.brokers[leaver].log.read_text()


def test_a_second_broker_of_the_same_id_does_not_start(
    cluster: Callable[[int], Cluster], tmp_path: Path
) -> None:
    one = cluster(1)
    with pytest.raises(AssertionError, match="broker id 1 is in use"):
        BrokerProcess(
            tmp_path / "impostor",
            broker_id=1,
            zookeeper=one.zookeeper,
            set={"zookeeper.session.timeout.ms": "1000"},
        )
    assert one.controller() == 1


def test_brokers_without_an_id_get_ids_above_the_reserved_ones_and_keep_them(
    cluster: Callable[[int], Cluster],
) -> None:
    one = cluster(0)
    one.start(-1)
    assert one.znodes.get_children("/brokers/ids") == ["1001"]
    assert one.brokers[-1].stop() == 0
    one.start(-1)
    assert one.znodes.get_children("/brokers/ids") == ["1001"]


def test_what_a_replicated_topic_took_survives_its_leader_and_is_on_it_again_when_it_returns(
    cluster: Callable[[int], Cluster],
) -> None:
    three = cluster(3)
    three.create("t", 1, replicas=3, **{"min.insync.replicas": "2"})
    three.produce("t", 0, b"before")
    dead = three.state("t", 0)["leader"]
    three.brokers[dead].kill()
    eventually(lambda: three.state("t", 0)["leader"] not in (dead, -1), what="another leader")
    three.produce("t", 0, b"after")
    assert three.read("t", 0, 2) == [b"before", b"after"]
    three.start(dead)
    eventually(lambda: set(three.state("t", 0)["isr"]) == {1, 2, 3}, what="three replicas in sync")
    logs = {(three.home / f"broker-{b}/logs/t-0/00000000000000000000.log").read_bytes() for b in (1, 2, 3)}
    assert len(logs) == 1, "the replicas differ"
    with pytest.raises(Exception, match="larger than available brokers"):
        three.create("u", 1, replicas=4)


def test_a_changed_topic_configuration_reaches_the_brokers(cluster: Callable[[int], Cluster]) -> None:
    one = cluster(1)
    one.create("t", 1)
    config = {"version": 1, "config": {"max.message.bytes": "500"}}
    one.znodes.set("/config/topics/t", json.dumps(config).encode())
    notification = json.dumps({"version": 2, "entity_path": "topics/t"}).encode()
    one.znodes.create("/config/changes/config_change_", notification, sequence=True)
    eventually(lambda: "topic configuration changed" in one.brokers[1].log.read_text(), what="the change")
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": one.bootstrap, "log_level": 0})
    producer.produce("t", b"x" * 1000, on_delivery=lambda e, _: errors.append(e and e.name()))
    producer.flush(20)
    assert errors == ["MSG_SIZE_TOO_LARGE"]
