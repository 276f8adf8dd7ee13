"""Configuration of a running broker: by admin clients, kept over a restart, seen by logs and listeners."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from processes import DevCluster, eventually
from raw_client import RawClient, make_topic, produce

ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, INCREMENTAL_ALTER_CONFIGS = 34, 35, 44
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def change(cluster: DevCluster, name: str, key: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (answer,) = admin.incremental_alter_configs([resource]).values()
    answer.result(20)


def value_of(cluster: DevCluster, key: str) -> tuple[str, int]:
    """(value, source)."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    broker = next(iter(admin.list_topics(timeout=10).brokers))
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(broker))]).values()
    entry = answer.result(20)[key]
    return entry.value, int(entry.source)


def test_a_changed_limit_holds_at_once_and_after_a_restart(
    dev_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = dev_cluster(data=tmp_path / "data")
    client = RawClient(cluster)
    make_topic(client, "limited")
    assert produce(client, "limited", b"x" * 5000)["error_code"] == 0
    broker = next(iter(AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).brokers))
    change(cluster, str(broker), "message.max.bytes", "3000")
    eventually(lambda: produce(client, "limited", b"x" * 5000)["error_code"] == 10, what="the new limit")
    client.socket.close()
    assert cluster.stop() == 0
    cluster = dev_cluster(data=tmp_path / "data")
    assert value_of(cluster, "message.max.bytes") == ("3000", 2)
    client = RawClient(cluster)
    eventually(lambda: produce(client, "limited", b"x" * 5000)["error_code"] == 10, what="the limit kept")
    client.socket.close()
    change(cluster, str(broker), "message.max.bytes", None)
    eventually(lambda: value_of(cluster, "message.max.bytes") == ("1048588", 5), what="the default again")


def test_the_listeners_take_a_changed_number_of_connections(dev_cluster: Callable[..., DevCluster]) -> None:
    cluster = dev_cluster()
    client = RawClient(cluster)
    limit = {"name": "max.connections.per.ip", "config_operation": 0, "value": "1"}
    everyone = {"resource_type": 4, "resource_name": "", "configs": [limit]}
    answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [everyone], "validate_only": False})
    assert answer["responses"][0]["error_code"] == 0

    def is_refused() -> bool:
        with socket.create_connection(cluster.addresses[0], timeout=5) as sock:
            sock.settimeout(0.5)
            try:
                return sock.recv(1) == b""
            except TimeoutError:
                return False

    eventually(is_refused, what="the refusal of one connection more")
    client.socket.close()


def test_the_rate_of_moves_between_directories_changes_while_they_go_on(
    dev_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    paths = [str(tmp_path / name) for name in "ab"]
    cluster = dev_cluster(set={"log.dirs": ",".join(paths), RATE: "0"})
    client = RawClient(cluster)
    make_topic(client, "moving")
    assert produce(client, "moving", b"x" * 5000)["error_code"] == 0

    def homes() -> list[tuple[str, bool, int]]:
        """(directory, is a copy, size) of each replica."""
        answer = client.ask(DESCRIBE_LOG_DIRS, 4, {"topics": [{"topic": "moving", "partitions": [0]}]})
        return [
            (result["log_dir"], partition["is_future_key"], partition["partition_size"])
            for result in answer["results"]
            for topic in result["topics"]
            for partition in topic["partitions"]
        ]

    ((source, _, size),) = homes()
    target = next(path for path in paths if path != source)
    wish = {"path": target, "topics": [{"name": "moving", "partitions": [0]}]}
    client.ask(ALTER_REPLICA_LOG_DIRS, 2, {"dirs": [wish]})
    assert sorted(homes()) == sorted([(source, False, size), (target, True, 0)])
    change(cluster, "1", RATE, "1000000")
    eventually(lambda: homes() == [(target, False, size)], what="the end of the move")
    client.socket.close()
