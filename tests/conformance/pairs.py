"""A broker of each kind with the same configuration, for scripts that ask both the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from kafka_oracle import KafkaBroker
from kazoo.client import KazooClient
from processes import BrokerProcess, free_port
from sessions import Pair
from zookeeper_process import ZooKeeperProcess

CLUSTER_ID = b'{"version":"1","id":"Yz3mX2fWQ0uQk1qJ8pYb1g"}'
LEFT_EPOCH = 5
SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "message.max.bytes": "100000",
    "socket.request.max.bytes": "1000000",
    "group.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "true",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # Records that the tests date years back stay until somebody deletes them.
    "log.retention.ms": "-1",
}


@contextmanager
def chroots(place: str) -> Iterator[KazooClient]:
    """A client of HOST:PORT/CHROOT with a chroot of its own for each broker, both with the same cluster id."""
    address, _, chroot = place.partition("/")
    # Its warning of a chroot that is not there comes before it could be made.
    znodes = KazooClient(address)
    znodes.start()
    try:
        znodes.ensure_path(chroot)
        znodes.chroot = f"/{chroot}"
        for chroot in ("/kafka", "/headrace"):
            znodes.create(f"{chroot}/cluster/id", CLUSTER_ID, makepath=True)
        yield znodes
    finally:
        znodes.stop()
        znodes.close()


@contextmanager
def running_pair(
    jars: Path,
    zookeeper: ZooKeeperProcess,
    home: Path,
    set: Mapping[str, str] | None = None,
    directories: Sequence[str] = ("logs",),
) -> Iterator[Pair]:
    """Both brokers, each in a chroot of a ZooKeeper that others share; `set` adds to the common settings.

    Each has data directories of these names in its home, and keeps its port when it is started again.
    """

    def settings(kind: str) -> dict[str, str]:
        log_dirs = ",".join(str(home / kind / name) for name in directories)
        return {"log.dirs": log_dirs, **SETTINGS, **(set or {})}

    place = zookeeper.under_chroot(home)
    with ExitStack() as stack:
        znodes = stack.enter_context(chroots(place))
        kafka = KafkaBroker(
            jars, home / "kafka", broker_id=1, zookeeper=f"{place}/kafka", set=settings("kafka")
        )
        stack.callback(kafka.end)
        listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
        headrace = BrokerProcess(
            home / "headrace",
            broker_id=1,
            zookeeper=f"{place}/headrace",
            set=listeners | settings("headrace"),
        )
        stack.callback(headrace.end)
        kafka.wait_until_serving()
        both = Pair(headrace=headrace, kafka=kafka, znodes=znodes)
        both.wait_for_producer_ids()
        yield both


LISTENERS = {1: ("PLAINTEXT", "EXTRA"), 2: ("PLAINTEXT",)}


class BrokerPair(NamedTuple):
    """Two brokers of each kind; only those with id 1 have the listener EXTRA, at `extra` by their other address."""

    first: Pair
    second: Pair
    extra: dict[tuple[str, int], tuple[str, int]]


@contextmanager
def running_broker_pairs(
    jars: Path, zookeeper: ZooKeeperProcess, home: Path, set: Mapping[str, str] | None = None
) -> Iterator[BrokerPair]:
    """Two brokers of each kind, those of one kind in one chroot; both first ones are controllers."""
    common = {
        **SETTINGS,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        **(set or {}),
    }
    kafkas, headraces, extra = [], [], {}
    place = zookeeper.under_chroot(home)
    with ExitStack() as stack:
        znodes = stack.enter_context(chroots(place))
        for broker_id, names in LISTENERS.items():
            for kind in ("kafka", "headrace"):
                addresses = [("127.0.0.1", free_port()) for _ in names]
                extra[addresses[0]] = addresses[-1]
                listeners = ",".join(
                    f"{name}://{host}:{port}" for name, (host, port) in zip(names, addresses, strict=True)
                )
                settings = {**common, "listeners": listeners}
                where, chroot = home / f"{kind}-{broker_id}", f"{place}/{kind}"
                if kind == "kafka":
                    kafka = KafkaBroker(jars, where, broker_id=broker_id, zookeeper=chroot, set=settings)
                    kafka.bootstrap = "{}:{}".format(*addresses[0])
                    stack.callback(kafka.end)
                    kafkas.append(kafka)
                else:
                    headrace = BrokerProcess(where, broker_id=broker_id, zookeeper=chroot, set=settings)
                    stack.callback(headrace.end)
                    headraces.append(headrace)
            kafkas[-1].wait_until_serving()
        first, second = (
            Pair(headrace=h, kafka=k, znodes=znodes) for h, k in zip(headraces, kafkas, strict=True)
        )
        yield BrokerPair(first, second, extra)


def leave_topic(
    znodes: KazooClient,
    chroot: str,
    name: str,
    topic_id: str,
    replicas: dict[int, list[int]],
    config: dict[str, str] | None = None,
    in_sync: Mapping[int, list[int]] | None = None,
) -> None:
    """The znodes of a topic whose partitions are led by the first of their replicas, all others out of sync; or else
    by the first of those `in_sync`.

    A controller that is elected afterwards finds it as its predecessor's.
    """
    path = f"{chroot}/brokers/topics/{name}"
    for partition, brokers in replicas.items():
        isr = (in_sync or {}).get(partition, brokers[:1])
        state = {
            "controller_epoch": 1,
            "leader": isr[0],
            "version": 1,
            "leader_epoch": LEFT_EPOCH,
            "isr": isr,
        }
        state_path = f"{path}/partitions/{partition}/state"
        znodes.create(state_path, json.dumps(state).encode(), makepath=True)
    config_znode = {"version": 1, "config": config or {}}
    znodes.create(f"{chroot}/config/topics/{name}", json.dumps(config_znode).encode())
    topic = {
        "version": 3,
        "topic_id": topic_id,
        "partitions": {str(partition): brokers for partition, brokers in replicas.items()},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    znodes.set(path, json.dumps(topic).encode())
