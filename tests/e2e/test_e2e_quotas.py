"""Clients with quotas: slowed down to their rate, told so, and at no cost to others; connections within their limits."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from processes import DevCluster, eventually, free_port
from raw_client import API_VERSIONS, METADATA, PRODUCE, RawClient, read_frame

from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

ALTER_QUOTAS = 49
TOPIC = "limited"
# Two windows of a second, so that what has been sent before counts for a second or two.
WINDOWS = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
RATE = 200_000
MESSAGE = bytes(10_000)
Start = Callable[..., DevCluster]


def let_hold(cluster: DevCluster, client_id: str, **quotas: float) -> None:
    """Set quotas of a client id, and one of another that shows when both hold."""
    client = RawClient(cluster)
    for name, values in ((client_id, quotas), ("probe", {"request_percentage": 0.0})):
        ops = [{"key": key, "value": value, "remove": False} for key, value in values.items()]
        entry = {"entity": [{"entity_type": "client-id", "entity_name": name}], "ops": ops}
        assert client.ask(ALTER_QUOTAS, 1, {"entries": [entry]})["entries"][0]["error_code"] == 0

    def is_held() -> bool:
        probe = RawClient(cluster)
        header = frames.encode_request_header(METADATA, 9, 1, "probe")
        probe.send(frames.frame(header, APIS[METADATA].encode_request(9, {"topics": []})))
        return bool(probe.answer(METADATA, 9)[1]["throttle_time_ms"])

    eventually(is_held, what="the quota")


@pytest.fixture
def cluster(dev_cluster: Start) -> DevCluster:
    started = dev_cluster(set=WINDOWS)
    admin = AdminClient({"bootstrap.servers": started.bootstrap})
    for made in admin.create_topics([NewTopic(TOPIC, 1, 1), NewTopic("free", 1, 1)]).values():
        made.result(20)
    return started


def settings(cluster: DevCluster, told: list[float], **others: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": "slow",
        "throttle_cb": lambda event: told.append(event.throttle_time),
        **others,
    }


def test_a_producer_is_slowed_down_to_its_rate_and_told_and_others_are_not(cluster: DevCluster) -> None:
    let_hold(cluster, "slow", producer_byte_rate=RATE)
    told: list[float] = []
    producer = Producer(settings(cluster, told, **{"batch.num.messages": 1, "linger.ms": 0}))
    latencies: list[float] = []
    is_over = threading.Event()

    def stand_by() -> None:
        bystander = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "acks": 1})
        while not is_over.is_set():
            began = time.monotonic()
            bystander.produce("free", b"message")
            assert bystander.flush(20) == 0
            latencies.append(time.monotonic() - began)
            time.sleep(0.01)

    thread = threading.Thread(target=stand_by)
    thread.start()
    began, count = time.monotonic(), 100
    for _ in range(count):
        producer.produce(TOPIC, MESSAGE, partition=0)
    assert producer.flush(60) == 0
    took_s = time.monotonic() - began
    is_over.set()
    thread.join()
    # One window's worth at once, and the rest at the rate.
    assert took_s == pytest.approx((count * len(MESSAGE) - RATE) / RATE, rel=0.3)
    assert max(told) > 0.02
    assert statistics.quantiles(latencies, n=100)[98] < 0.25


def test_a_consumer_is_slowed_down_to_its_rate_and_told(cluster: DevCluster) -> None:
    count = 100
    # A batch larger than a burst never leaves, with Apache Kafka just the same.
    free = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 1})
    for _ in range(count):
        free.produce(TOPIC, MESSAGE, partition=0)
    assert free.flush(20) == 0
    let_hold(cluster, "slow", consumer_byte_rate=RATE)
    told: list[float] = []
    others = {"group.id": "g", "auto.offset.reset": "earliest", "fetch.message.max.bytes": 100_000}
    consumer = Consumer(settings(cluster, told, **others))
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    seen, began = 0, time.monotonic()
    while seen < count and time.monotonic() < began + 60:
        seen += consumer.poll(1) is not None
    took_s = time.monotonic() - began
    consumer.close()
    assert seen == count
    # Never faster than the rate; librdkafka pauses by itself, too, after an empty answer.
    at_rate_s = (count * len(MESSAGE) - RATE) / RATE
    assert 0.8 * at_rate_s < took_s < 2.5 * at_rate_s
    assert max(told) > 0.02


def test_metrics_count_whom_quotas_hold_back(cluster: DevCluster) -> None:
    let_hold(cluster, "slow", producer_byte_rate=1)
    client = RawClient(cluster)
    message = {"acks": 1, "timeout_ms": 1000, "topic_data": []}
    header = frames.encode_request_header(PRODUCE, 9, 1, "slow")
    client.send(frames.frame(header, APIS[PRODUCE].encode_request(9, message)))
    assert client.answer(PRODUCE, 9)[1]["throttle_time_ms"] > 1000
    # Muted for so long, and the client goes away: nothing is left of it.
    client.socket.close()
    assert RawClient(cluster).ask(API_VERSIONS, 0, {})["error_code"] == 0


def test_brokers_get_in_by_their_own_listener_where_the_broker_is_full(dev_cluster: Start) -> None:
    inner = f"127.0.0.1:{free_port()}"
    outer = f"127.0.0.1:{free_port()}"
    cluster = dev_cluster(
        listen=outer,
        set={
            "listeners": f"PLAINTEXT://{outer},INNER://{inner}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "max.connections": "6",
        },
    )
    inside: list[socket.socket] = []
    while True:
        client = connected(outer)
        if not is_served(client, 2):
            break
        inside.append(client)
    brokers = [connected(inner) for _ in range(2)]
    assert all(is_served(broker, 20) for broker in brokers)
    assert 1 <= sum(is_closed(client) for client in inside) <= 2
    assert "max.connections is reached" in cluster.broker_log()


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def is_served(client: socket.socket, within_s: float) -> bool:
    client.settimeout(within_s)
    header = frames.encode_request_header(API_VERSIONS, 0, 1, "raw")
    with suppress(ConnectionError, TimeoutError):
        client.sendall(frames.frame(header, APIS[API_VERSIONS].encode_request(0, {})))
        return bool(read_frame(client))
    return False


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.2)
    with suppress(TimeoutError):
        try:
            return not client.recv(1)
        except ConnectionError:
            return True
    return False
