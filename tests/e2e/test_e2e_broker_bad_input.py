"""What is wrong on one connection ends that connection, with one warning line; nobody else notices."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator

import pytest
from processes import DevCluster, eventually
from raw_client import API_VERSIONS, FETCH, METADATA, PRODUCE, RawClient, make_topic, produce, produce_request

from headrace.broker.wire import batches, frames
from headrace.broker.wire.api import APIS


@pytest.fixture
def client(broker: DevCluster) -> Iterator[RawClient]:
    raw = RawClient(broker)
    yield raw
    raw.socket.close()


@pytest.fixture
def bystander(broker: DevCluster) -> Iterator[RawClient]:
    """A connection that was there before and must still be served afterwards."""
    raw = RawClient(broker)
    assert raw.ask(API_VERSIONS, 0, {})["error_code"] == 0
    yield raw
    assert raw.ask(API_VERSIONS, 0, {})["error_code"] == 0
    raw.socket.close()


def warnings_of(broker: DevCluster) -> list[str]:
    return [line for line in broker.broker_log().splitlines() if 'event="connection closed"' in line]


BAD_FRAMES = {
    "negative size": struct.pack(">i", -1),
    "size above socket.request.max.bytes": struct.pack(">i", 104857601),
    "unknown key": frames.frame(struct.pack(">hhih", 999, 0, 1, -1)),
    "key that is not served": frames.frame(struct.pack(">hhih", 50, 0, 1, -1)),
    "version above the range": frames.frame(struct.pack(">hhih", METADATA, 99, 1, -1) + bytes(20)),
    "negative version": frames.frame(struct.pack(">hhih", METADATA, -1, 1, -1) + bytes(20)),
    "empty frame": frames.frame(b""),
    "header cut short": frames.frame(b"\0\3\0"),
    "client id past the end": frames.frame(struct.pack(">hhih", METADATA, 1, 1, 500)),
    "array count past the end": frames.frame(struct.pack(">hhihi", METADATA, 1, 1, -1, 0x7FFFFFFF)),
    "string past the end": frames.frame(struct.pack(">hhihih", METADATA, 1, 1, -1, 1, 999)),
    "produce cut short": frames.frame(struct.pack(">hhihhh", PRODUCE, 8, 1, -1, -1, 1)),
    "fetch with absurd topics": frames.frame(
        struct.pack(">hhihiiiibiii", FETCH, 11, 1, -1, -1, 0, 1, 1, 0, 0, -1, 0x7FFFFFFF)
    ),
}


@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_bad_frame_closes_its_connection_with_one_warning(
    broker: DevCluster, client: RawClient, bystander: RawClient, data: bytes
) -> None:
    before = len(warnings_of(broker))
    client.send(data)
    assert client.is_closed_by_broker()
    eventually(lambda: len(warnings_of(broker)) == before + 1, what="one warning")


def test_a_cut_frame_is_warned_of_when_its_client_goes(
    broker: DevCluster, client: RawClient, bystander: RawClient
) -> None:
    before = len(warnings_of(broker))
    client.send(struct.pack(">i", 1000) + bytes(10))
    client.socket.close()
    eventually(lambda: len(warnings_of(broker)) == before + 1, what="one warning")


def test_requests_before_a_bad_frame_are_answered(client: RawClient) -> None:
    client.send(client.request(API_VERSIONS, 0, {}) + struct.pack(">i", -5))
    assert client.reply()[:4] == struct.pack(">i", 1)
    assert client.is_closed_by_broker()


def test_api_versions_above_ours_is_answered_in_version_zero(client: RawClient) -> None:
    client.send(frames.frame(struct.pack(">hhih", API_VERSIONS, 77, 5, -1), b"\0\1\1\0"))
    reply = client.reply()
    assert reply[:4] == struct.pack(">i", 5)
    message = APIS[API_VERSIONS].decode_response(0, reply, 4)
    assert message["error_code"] == 35
    assert {"api_key": 18, "min_version": 0, "max_version": 4} in message["api_keys"]
    assert (
        client.ask(API_VERSIONS, 4, {"client_software_name": "x", "client_software_version": "1"})[
            "error_code"
        ]
        == 0
    )


def test_random_bytes_never_stop_the_broker(broker: DevCluster, bystander: RawClient) -> None:
    generator = random.Random(os.environ.get("FUZZ_SEED", "headrace"))
    for _ in range(300):
        raw = RawClient(broker)
        key = generator.choice([*sorted(APIS), 200])
        body = generator.randbytes(generator.choice([0, 3, 20, 200, 5000]))
        header = struct.pack(">hhih", key, generator.randrange(0, 14), 7, -1)
        try:
            raw.send(frames.frame(header, body))
        except ConnectionError:
            continue
        finally:
            raw.socket.close()
    assert bystander.ask(METADATA, 1, {"topics": []})["controller_id"] == 1


def test_flipped_bits_of_real_requests_never_stop_the_broker(
    broker: DevCluster, bystander: RawClient
) -> None:
    generator = random.Random("flips")
    good = produce_request("flips", b"value")
    for _ in range(300):
        data = bytearray(good)
        for _ in range(generator.randrange(1, 4)):
            data[generator.randrange(4, len(data))] ^= 1 << generator.randrange(8)
        raw = RawClient(broker)
        raw.send(bytes(data))
        raw.socket.close()
    assert bystander.ask(METADATA, 1, {"topics": []})["controller_id"] == 1


@pytest.mark.parametrize(
    ("damage", "codes"),
    [("crc", {2}), ("magic", {2, 76, 87}), ("length", {2, 87})],
    ids=["crc", "magic", "length"],
)
def test_a_damaged_batch_is_refused_and_leaves_no_trace(
    client: RawClient, bystander: RawClient, damage: str, codes: set[int]
) -> None:
    topic = f"damaged-{damage}"
    make_topic(client, topic)
    assert produce(client, topic, b"good")["base_offset"] == 0
    assert produce(client, topic, b"bad", damage=damage)["error_code"] in codes
    assert produce(client, topic, b"good")["base_offset"] == 1


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7, 8, 9, 10, 11])
def test_every_produce_version_is_answered_in_its_own_form(client: RawClient, version: int) -> None:
    topic = f"versions-{version}"
    make_topic(client, topic)
    for offset in range(3):
        answer = produce(client, topic, b"x", version=version)
        assert (answer["error_code"], answer["base_offset"]) == (0, offset)
    assert produce(client, "no.such.topic", b"x", version=version)["error_code"] == 3


@pytest.mark.parametrize("version", range(4, 18))
def test_every_fetch_version_returns_what_was_produced(client: RawClient, version: int) -> None:
    topic = f"fetch-{version}"
    make_topic(client, topic)
    produce(client, topic, b"hello")
    metadata = client.ask(METADATA, 12, {"topics": [{"name": topic}]})
    topic_id = metadata["topics"][0]["topic_id"]
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    name = {"topic": topic} if version < 13 else {"topic_id": topic_id}
    message = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 10000,
        "topics": [{**name, "partitions": [wanted]}],
    }
    answer = client.ask(FETCH, version, message)
    partition = answer["responses"][0]["partitions"][0]
    assert (partition["error_code"], partition["high_watermark"]) == (0, 1)
    assert batches.read_header(partition["records"]).record_count == 1
    records = batches.decode_records(partition["records"], 0, batches.read_header(partition["records"]))
    assert [record.value for record in records] == [b"hello"]


def test_pipelined_requests_are_answered_in_order(client: RawClient) -> None:
    client.send(b"".join(client.request(API_VERSIONS, 0, {}, correlation_id=i) for i in range(2000)))
    assert [int.from_bytes(client.reply()[:4], "big") for _ in range(2000)] == list(range(2000))


def test_a_parked_fetch_holds_up_what_was_sent_after_it_and_is_woken_by_an_append(
    broker: DevCluster, client: RawClient
) -> None:
    topic = "parked"
    make_topic(client, topic)
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fetch = {
        "max_wait_ms": 60000,
        "min_bytes": 1,
        "max_bytes": 10000,
        "topics": [{"topic": topic, "partitions": [wanted]}],
    }
    client.send(client.request(FETCH, 11, fetch, 1) + client.request(API_VERSIONS, 0, {}, 2))
    producer = RawClient(broker)
    assert produce(producer, topic, b"wake up")["error_code"] == 0
    producer.socket.close()
    assert client.reply()[:4] == struct.pack(">i", 1)
    assert client.reply()[:4] == struct.pack(">i", 2)


def test_a_client_that_does_not_read_costs_no_memory(broker: DevCluster, bystander: RawClient) -> None:
    topic = "backpressure"
    raw = RawClient(broker)
    make_topic(raw, topic)
    for _ in range(20):
        assert produce(raw, topic, os.urandom(900_000))["error_code"] == 0
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50_000_000}
    fetch = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 50_000_000,
        "topics": [{"topic": topic, "partitions": [wanted]}],
    }
    process = broker.broker_process()
    before = process.memory_info().rss
    raw.send(raw.request(FETCH, 11, fetch) * 500)
    raw.send(raw.request(METADATA, 1, {"topics": None}) * 5000)
    for _ in range(50):
        assert bystander.ask(API_VERSIONS, 0, {})["error_code"] == 0
    assert process.memory_info().rss - before < 30_000_000
    raw.socket.close()
