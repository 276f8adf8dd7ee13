"""What clients make a broker keep has bounds: members of groups, replies to clients that do not read, requests in a row."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Iterator

import pytest
from processes import DevCluster, eventually
from raw_client import API_VERSIONS, FETCH, METADATA, RawClient, make_topic, produce

FIND_COORDINATOR, JOIN_GROUP, CREATE_TOPICS = 10, 11, 19
GROUP_MAX_SIZE_REACHED = 81
MB = 1 << 20
SLOW_READERS_COUNT = 20


@pytest.fixture
def bystander(broker: DevCluster) -> Iterator[RawClient]:
    raw = RawClient(broker)
    yield raw
    assert raw.ask(API_VERSIONS, 0, {})["error_code"] == 0
    raw.socket.close()


def test_members_of_all_groups_have_one_bound(broker: DevCluster, bystander: RawClient) -> None:
    def has_coordinator() -> bool:
        found = bystander.ask(FIND_COORDINATOR, 2, {"key": "g", "key_type": 0})
        return bool(found["error_code"] == 0)

    eventually(has_coordinator, what="a coordinator")
    before = broker.broker_process().memory_info().rss
    codes: Counter[int] = Counter()
    for number in range(100):
        join = {
            "group_id": f"large-{number}",
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": bytes(MB - 2000)}],
        }
        codes[bystander.ask(JOIN_GROUP, 3, join)["error_code"]] += 1
    # 64 MiB for the members of all groups.
    assert codes == {0: 64, GROUP_MAX_SIZE_REACHED: 36}
    assert broker.broker_process().memory_info().rss - before < 110 * MB


def test_clients_that_never_read_cost_a_bounded_reply_each(broker: DevCluster, bystander: RawClient) -> None:
    wide = {"name": "wide", "num_partitions": 100, "replication_factor": 1}
    assert (
        bystander.ask(CREATE_TOPICS, 4, {"topics": [wide], "timeout_ms": 10_000})["topics"][0]["error_code"]
        == 0
    )
    make_topic(bystander, "bounds")
    for _ in range(10):
        assert produce(bystander, "bounds", os.urandom(900_000))["error_code"] == 0
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 * MB}
    fetch = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 50 * MB,
        "topics": [{"topic": "bounds", "partitions": [wanted]}],
    }
    before = broker.broker_process().memory_info().rss
    clients = []
    for _ in range(SLOW_READERS_COUNT):
        client = RawClient(broker)
        clients.append(client)
        client.socket.settimeout(0.2)
        requests = (
            client.request(METADATA, 1, {"topics": None}) * 5000 + client.request(FETCH, 11, fetch) * 5000
        )
        # The broker stops to read from a client that does not: what does not fit the sockets is never taken.
        with contextlib.suppress(TimeoutError, socket.timeout):
            client.send(requests)
        assert bystander.ask(METADATA, 1, {"topics": None})["controller_id"] == 1
    assert produce(bystander, "bounds", b"still served")["error_code"] == 0
    assert broker.broker_process().memory_info().rss - before < SLOW_READERS_COUNT * 3 * MB
    for client in clients:
        client.socket.close()
