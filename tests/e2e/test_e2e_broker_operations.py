"""What an operator sees and sets: metrics, connection limits, idle connections."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable
from uuid import uuid4

from processes import DevCluster, eventually, free_port
from raw_client import API_VERSIONS, RawClient
from test_e2e_broker_clients import consume_all, produce

Start = Callable[..., DevCluster]


def metrics_at(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_metrics_count_what_clients_do(dev_cluster: Start) -> None:
    port = free_port()
    cluster = dev_cluster(set={"headrace.metrics.listener": f"127.0.0.1:{port}"})
    topic = f"metrics-{uuid4()}"
    before = metrics_at(port)
    produce(cluster.bootstrap, topic, [b"x" * 100] * 50)
    assert len(consume_all(cluster.bootstrap, topic, 50)) == 50
    after = metrics_at(port)
    labels = f'{{partition="0",topic="{topic}"}}'
    assert after[f"headrace_log_end_offset{labels}"] == 50
    assert after[f"headrace_high_watermark{labels}"] == 50
    assert after[f"headrace_last_stable_offset{labels}"] == 50
    assert after[f'headrace_produced_bytes_total{{topic="{topic}"}}'] >= 5000
    assert after[f'headrace_fetched_bytes_total{{topic="{topic}"}}'] >= 5000
    assert after['headrace_requests_total{api="Produce"}'] >= 1
    assert after['headrace_requests_total{api="Fetch"}'] >= 1
    assert after['headrace_request_handling_seconds_total{api="Produce"}'] > 0
    assert after["headrace_serving"] == after["headrace_active_controller"] == 1
    assert after["headrace_zookeeper_registered"] == 1
    assert after["headrace_received_bytes_total"] - before["headrace_received_bytes_total"] > 5000
    assert after["headrace_sent_bytes_total"] - before["headrace_sent_bytes_total"] > 5000
    assert after["headrace_request_size_bytes_count"] > before["headrace_request_size_bytes_count"]
    assert after["headrace_connections_accepted_total"] > before["headrace_connections_accepted_total"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=20) as answer:
        assert json.load(answer)["state"] == "serving"
    threads = cluster.broker_process().num_threads()
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    assert metrics_at(port)["process_max_fds"] > after["headrace_open_files"]
    assert cluster.broker_process().num_threads() - threads < 5
    assert len(idle) == 100


def test_connections_above_the_limit_are_closed_and_the_others_served(dev_cluster: Start) -> None:
    cluster = dev_cluster(set={"max.connections.per.ip": "5"})
    clients: list[RawClient] = []
    # The broker's own connections to itself, if any, count too: fill up until one is refused.
    for _ in range(6):
        client = RawClient(cluster)
        client.send(client.request(API_VERSIONS, 0, {}))
        try:
            client.reply()
        except ConnectionError:
            break
        clients.append(client)
    assert 0 < len(clients) <= 5
    assert "max.connections.per.ip is reached" in cluster.broker_log()
    assert all(client.ask(API_VERSIONS, 0, {})["error_code"] == 0 for client in clients)
    clients.pop().socket.close()
    eventually(lambda: RawClient(cluster).ask_or_none(API_VERSIONS, 0, {}) is not None, what="a free place")


def test_idle_connections_are_closed(dev_cluster: Start) -> None:
    cluster = dev_cluster(set={"connections.max.idle.ms": "1500"})
    idle = RawClient(cluster)
    assert idle.ask(API_VERSIONS, 0, {})["error_code"] == 0
    assert idle.is_closed_by_broker()
    assert "idle connection closed" in cluster.broker_log()
