"""Real clients over TLS: one-sided and mutual, beside plaintext, with large answers, many at once, and half-way ends."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient
from processes import eventually
from tls_broker import NAMES, TlsBroker
from tls_kit import authority, signed
from zookeeper_process import ZooKeeperProcess

TLS = ("SSL", "MUTUAL")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[TlsBroker]:
    home = tmp_path_factory.mktemp("tls")
    broker = TlsBroker(home, zookeeper.under_chroot(home), {"headrace.metrics.listener": "127.0.0.1:0"})
    yield broker
    broker.process.end()


def context_of(broker: TlsBroker, listener: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(broker.authority_file))
    if listener == "MUTUAL":
        context.load_cert_chain(*map(str, broker.alice_files))
    return context


def produce(settings: dict[str, Any], topic: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer({**settings, "linger.ms": 5})
    failures: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda e, _: failures.append(e) if e else None)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failures == []


def consume(settings: dict[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(min(1000, count - len(found)), timeout=20)
            assert messages
            for message in messages:
                assert message.error() is None
                found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("listener", NAMES)
def test_librdkafka(broker: TlsBroker, listener: str) -> None:
    topic = f"librdkafka-{listener}"
    values = [b"%d" % i + b"x" * 20_000 for i in range(400)]
    produce(broker.librdkafka(listener), topic, values)
    assert consume(broker.librdkafka(listener), topic, len(values)) == values
    # What one listener took the others give, each with addresses of its own.
    for other in NAMES:
        metadata = AdminClient(broker.librdkafka(other)).list_topics(topic, timeout=10)
        assert [each.port for each in metadata.brokers.values()] == [broker.ports[other]]


@pytest.mark.parametrize("listener", TLS)
def test_kafka_python(broker: TlsBroker, listener: str) -> None:
    certificate, key = map(str, broker.alice_files)
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap(listener),
        "security_protocol": "SSL",
        "ssl_cafile": str(broker.authority_file),
        **({"ssl_certfile": certificate, "ssl_keyfile": key} if listener == "MUTUAL" else {}),
    }
    topic = f"kafka-python-{listener}"
    producer = kafka.KafkaProducer(**settings)
    futures = [producer.send(topic, b"%d" % i) for i in range(500)]
    producer.flush(20)
    assert sorted(future.get(10).offset for future in futures) == list(range(500))
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **settings
    )
    assert [next(consumer).value for _ in range(500)] == [b"%d" % i for i in range(500)]
    consumer.close()


@pytest.mark.parametrize("listener", TLS)
def test_aiokafka(broker: TlsBroker, listener: str) -> None:
    async def run() -> list[bytes]:
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap(listener),
            "security_protocol": "SSL",
            "ssl_context": context_of(broker, listener),
        }
        topic = f"aiokafka-{listener}"
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for i in range(200):
                await producer.send(topic, b"%d" % i)
            await producer.flush()
        consumer = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings)
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(200)]

    assert asyncio.run(run()) == [b"%d" % i for i in range(200)]


@pytest.mark.parametrize("listener", TLS)
def test_kcat(broker: TlsBroker, listener: str) -> None:
    options = [
        part for name, value in broker.librdkafka(listener).items() for part in ("-X", f"{name}={value}")
    ]
    topic = f"kcat-{listener}"

    def kcat(*arguments: str, stdin: str = "") -> str:
        ended = subprocess.run(
            ["kcat", *options, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return ended.stdout

    kcat("-P", "-t", topic, stdin="one\ntwo\n")
    assert kcat("-C", "-t", topic, "-e", "-q") == "one\ntwo\n"
    (told,) = json.loads(kcat("-L", "-J"))["brokers"]
    assert told["name"] == broker.bootstrap(listener)


def fetch_answer(broker: TlsBroker, topic: str, pause_s: float) -> bytes:
    """All that a Fetch of 20 MB brings, read by a client that begins late and takes small pieces."""
    context = context_of(broker, "SSL")
    with socket.create_connection(broker.address("SSL")) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as sock:
            name = topic.encode()
            body = b"\xff\xff\xff\xff" + (1000).to_bytes(4, "big") + (1).to_bytes(4, "big")
            body += (50_000_000).to_bytes(4, "big") + b"\0" + (1).to_bytes(4, "big")
            body += len(name).to_bytes(2, "big") + name + (1).to_bytes(4, "big")
            body += (0).to_bytes(4, "big") + (0).to_bytes(8, "big") + (50_000_000).to_bytes(4, "big")
            header = b"\0\1\0\4" + (7).to_bytes(4, "big") + b"\0\1c"
            sock.sendall(len(header + body).to_bytes(4, "big") + header + body)
            threading.Event().wait(pause_s)
            size, found = None, b""
            while size is None or len(found) < size + 4:
                piece = sock.recv(1 << 16)
                assert piece
                found += piece
                if size is None and len(found) >= 4:
                    size = int.from_bytes(found[:4], "big")
            return found


def test_a_slow_reader_gets_a_large_answer_whole(broker: TlsBroker) -> None:
    values = [bytes([i % 256]) * 100_000 for i in range(80)]
    produce(broker.librdkafka("SSL"), "large", values)
    at_once, late = fetch_answer(broker, "large", 0), fetch_answer(broker, "large", 1.0)
    assert at_once == late
    assert len(at_once) > 8_000_000


def test_a_request_in_one_segment_with_the_end_of_the_handshake(broker: TlsBroker) -> None:
    """The socket tells nothing of it any more when the handshake is done."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context_of(broker, "SSL").wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(broker.address("SSL"), timeout=10) as sock:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                incoming.write(sock.recv(1 << 14))
        tls.write(b"\0\0\0\x0b\0\x12\0\0\0\0\0\1\0\1c")
        sock.sendall(outgoing.read())
        answer = b""
        while not answer:
            incoming.write(sock.recv(1 << 14))
            with suppress(ssl.SSLWantReadError):
                answer = tls.read(100)
        assert answer[4:8] == b"\0\0\0\1"


def refused(broker: TlsBroker, line: str, attempt: Any) -> None:
    """The attempt fails, and the log tells it once, in a line with these words."""
    before = broker.log.count(line)
    attempt()
    eventually(lambda: broker.log.count(line) == before + 1, timeout_s=10, what=f"a line with {line}")


def shake_hands(broker: TlsBroker, listener: str, context: ssl.SSLContext) -> None:
    answer = b""
    with (
        suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(broker.address(listener), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as sock,
    ):
        # With TLS 1.3 the client is done first, and hears of a refusal when it reads.
        sock.sendall(b"x")
        answer = sock.recv(1)
    assert answer == b""


def test_a_client_without_a_certificate_where_one_is_required(broker: TlsBroker) -> None:
    context = context_of(broker, "SSL")
    refused(broker, "it has shown no certificate", lambda: shake_hands(broker, "MUTUAL", context))


@pytest.mark.parametrize("kind", ["expired", "stranger"])
def test_a_certificate_that_is_not_trusted(broker: TlsBroker, kind: str) -> None:
    days = (-3.0, -1.0) if kind == "expired" else (-1.0, 1.0)
    signer = broker.authority if kind == "expired" else authority("strange-ca")
    context = context_of(broker, "SSL")
    context.load_cert_chain(*map(str, broker.write(kind, signed(signer, kind, days=days))))
    said = "certificate has expired" if kind == "expired" else "self-signed certificate in certificate chain"
    refused(
        broker,
        f"its certificate is not trusted here ({said})",
        lambda: shake_hands(broker, "MUTUAL", context),
    )


def test_a_version_that_is_not_spoken(broker: TlsBroker) -> None:
    context = context_of(broker, "SSL")
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    refused(broker, "it speaks none of ssl.enabled.protocols", lambda: shake_hands(broker, "SSL", context))


def test_a_client_that_does_not_trust_the_broker(broker: TlsBroker) -> None:
    context = ssl.create_default_context()
    said = "the client does not trust who signed this broker's certificate"
    refused(broker, said, lambda: shake_hands(broker, "SSL", context))


def test_a_plaintext_client_at_a_listener_with_tls(broker: TlsBroker) -> None:
    def attempt() -> None:
        with socket.create_connection(broker.address("SSL"), timeout=10) as sock:
            sock.sendall(b"\0\0\0\x12\0\x12\0\0\0\0\0\1\0\x08consumer")
            with suppress(ConnectionResetError):
                assert sock.recv(100) == b""

    refused(broker, "it does not speak TLS, as the listener SSL does", attempt)


def test_a_client_with_tls_at_a_plaintext_listener(broker: TlsBroker) -> None:
    context = context_of(broker, "SSL")
    refused(
        broker,
        "it speaks TLS, which this listener does not",
        lambda: shake_hands(broker, "PLAINTEXT", context),
    )


def test_whoever_only_looks_whether_the_port_is_open_is_not_told(broker: TlsBroker) -> None:
    before = broker.log
    for _ in range(5):
        socket.create_connection(broker.address("SSL"), timeout=10).close()
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient({"bootstrap.servers": broker.bootstrap("SSL")}).list_topics(timeout=2)
    assert broker.log[len(before) :].count("handshake failed") == broker.log[len(before) :].count(
        "does not speak TLS"
    )


def test_the_broker_that_served_all_of_this_never_failed_at_a_request(broker: TlsBroker) -> None:
    assert "request failed" not in broker.log
    assert "Traceback" not in broker.log
