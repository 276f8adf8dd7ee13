"""The instrumented producer against a real broker and registry: what arrives, and what its accounts say."""

from __future__ import annotations

import hashlib
import io
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from fastavro import schemaless_reader
from processes import DevCluster, eventually, free_port
from registry_process import RegistryProcess

from headrace.events.avro_schemas import MONITORING_TOPIC, parsed_schema, schema_text
from headrace.events.envelope import unframe
from headrace.events.fingerprint import MASK
from headrace.events.fingerprint_columns import fingerprint_sum
from headrace.events.monitoring import MonitoringEvent
from headrace.producer import EventError, Producer, ProducerClosedError
from headrace.producer.registration import RegistrationError
from headrace.producer.stream import Counts

HEADRACE = str(Path(sys.executable).with_name("headrace"))
LINE = {"reason": "r", "line": b"x", "size": 1, "sha256": ""}
GOOD = '{n} - - [17/May/2015:10:05:03 +0000] "GET /{n} HTTP/1.1" 200 1 "-" "-"\n'


@pytest.fixture(scope="module")
def registry(broker: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    process = RegistryProcess(tmp_path_factory.mktemp("registry") / "log", broker.bootstrap)
    yield process
    process.end()


def new_producer(bootstrap: str, url: str, topic: str, **rest: Any) -> Producer:
    return Producer(
        bootstrap=bootstrap,
        registry_url=url,
        schemas={topic: schema_text("rejected_line")},
        server="web-1",
        service="shop",
        datacenter="dc-east",
        **{"window_size_ms": 1000, **rest},
    )


def read_all(bootstrap: str, topic: str) -> list[Message]:
    """Return all messages of a topic as it is now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        positions = [TopicPartition(topic, partition, 0) for partition in partitions]
        left = sum(consumer.get_watermark_offsets(position, timeout=20)[1] for position in positions)
        consumer.assign(positions)
        messages: list[Message] = []
        deadline = time.monotonic() + 60
        while len(messages) < left:
            assert time.monotonic() < deadline, f"{len(messages)} of {left} messages of {topic}"
            messages += [message for message in consumer.consume(1000, 0.5) if message.error() is None]
        return messages
    finally:
        consumer.close()


def count_of(bootstrap: str, topic: str) -> int:
    """How many messages the topic has now; none when it is not there yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        positions = [TopicPartition(topic, partition) for partition in partitions]
        return sum(consumer.get_watermark_offsets(position, timeout=20)[1] for position in positions)
    finally:
        consumer.close()


def decoded(message: Message, schema: Any) -> dict[str, Any]:
    _, payload = unframe(message.value())
    record = schemaless_reader(io.BytesIO(payload), parsed_schema(schema), None)
    assert isinstance(record, dict)
    return record


def accounts_of(bootstrap: str, producer_id: str, topic: str) -> list[MonitoringEvent]:
    events = [
        MonitoringEvent.from_record(decoded(message, "monitoring_event"))
        for message in read_all(bootstrap, MONITORING_TOPIC)
    ]
    mine = [event for event in events if event.header.producer == producer_id and event.topic == topic]
    return sorted(mine, key=lambda event: event.header.sequence)


def check_accounts(
    bootstrap: str, producer_id: str, topic: str, sequences: list[int]
) -> list[MonitoringEvent]:
    """The accounts add up to exactly these acknowledged sequences; returns them."""
    events = accounts_of(bootstrap, producer_id, topic)
    accounts = [event.account for event in events]
    runs = [run for account in accounts for run in account.acknowledgements]
    assert sum(account.count for account in accounts) == len(sequences)
    assert sorted(at for run in runs for at in range(run[0], run[1] + 1)) == sequences
    assert sum(account.fingerprint for account in accounts) & MASK == fingerprint_sum(producer_id, sequences)
    assert [account.kind for account in accounts].count("closing") == 1
    assert accounts[-1].kind == "closing"
    return events


def test_events_arrive_in_their_envelope_and_are_accounted(
    broker: DevCluster, registry: RegistryProcess
) -> None:
    begin = time.time_ns() // 1_000_000
    with new_producer(broker.bootstrap, registry.url, "enveloped") as producer:
        for number in range(5000):
            producer.send("enveloped", {**LINE, "size": number})
    counts = producer.counts()["enveloped"]
    assert (counts.acknowledged, counts.failed, counts.unknown) == (5000, 0, 0)
    messages = read_all(broker.bootstrap, "enveloped")
    records = sorted((decoded(each, "rejected_line") for each in messages), key=lambda each: each["size"])
    headers = [record["header"] for record in records]
    assert [header["sequence"] for header in headers] == list(range(5000))
    assert {(each["server"], each["service"], each["producer"]) for each in headers} == {
        ("web-1", "shop", producer.producer_id)
    }
    times = [round(header["time"].timestamp() * 1000) for header in headers]
    assert begin <= min(times) <= max(times) <= time.time_ns() // 1_000_000
    assert sorted(message.timestamp()[1] for message in messages) == sorted(times)
    events = check_accounts(broker.bootstrap, producer.producer_id, "enveloped", list(range(5000)))
    windows = Counter(time_ms - time_ms % 1000 for time_ms in times)
    for event in events:
        windows[event.account.window_start] -= event.account.count
    assert set(windows.values()) == {0}
    assert events[0].account.kind == "heartbeat"
    assert {event.datacenter for event in events} == {"dc-east"}
    assert [event.account.complete_until for event in events] == sorted(
        event.account.complete_until for event in events
    )
    assert producer.monitoring_failures == 0


def test_an_idle_producer_sends_heartbeats(broker: DevCluster, registry: RegistryProcess) -> None:
    with new_producer(broker.bootstrap, registry.url, "idle", window_size_ms=200) as producer:

        def heartbeats() -> int:
            events = accounts_of(broker.bootstrap, producer.producer_id, "idle")
            return sum(event.account.kind == "heartbeat" for event in events)

        eventually(lambda: heartbeats() >= 4, what="four heartbeats")
    check_accounts(broker.bootstrap, producer.producer_id, "idle", [])


def test_what_the_broker_refuses_is_counted_with_its_reason(
    broker: DevCluster, registry: RegistryProcess
) -> None:
    big = {**LINE, "line": b"x" * 1_100_000}
    config = {"message.max.bytes": 2_000_000}
    with new_producer(broker.bootstrap, registry.url, "refused", client_config=config) as producer:
        producer.send("refused", LINE)
        producer.send("refused", big)
        producer.send("refused", {**big, "line": b"x" * 3_000_000})
        producer.send("refused", LINE)
    counts = producer.counts()["refused"]
    assert counts.acknowledged + counts.failed + counts.unknown == 4
    assert counts.failed >= 2, counts
    arrived = [
        decoded(each, "rejected_line")["header"]["sequence"] for each in read_all(broker.bootstrap, "refused")
    ]
    events = check_accounts(broker.bootstrap, producer.producer_id, "refused", sorted(arrived))
    ranges = [entry for event in events for entry in event.account.undelivered]
    assert {1, 2} <= {at for entry in ranges for at in range(entry[0], entry[1] + 1)}
    assert all("large" in entry.reason.lower() for entry in ranges)


def test_an_account_that_was_not_delivered_is_published_again(
    dev_cluster: Callable[..., DevCluster], registry: RegistryProcess, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = dev_cluster()
    config = {"delivery.timeout.ms": 1500}
    producer = new_producer(cluster.bootstrap, registry.url, "again", client_config=config)
    producer.send("again", LINE)
    eventually(lambda: producer.counts()["again"].acknowledged == 1, what="the first acknowledgement")
    cluster.kill_broker()
    for _ in range(3):
        producer.send("again", LINE)
    again = "a window account was not delivered and is published again"
    eventually(lambda: again in caplog.text, what="an account that is not delivered")
    cluster = dev_cluster(data=cluster.data, listen=cluster.bootstrap)
    counts = producer.close()["again"]
    assert (counts.acknowledged, counts.unknown + counts.failed) == (1, 3)
    assert producer.monitoring_failures == 0
    events = check_accounts(cluster.bootstrap, producer.producer_id, "again", [0])
    undelivered = [entry for event in events for entry in event.account.undelivered]
    assert {at for entry in undelivered for at in range(entry[0], entry[1] + 1)} == {1, 2, 3}


def test_what_is_under_way_when_the_broker_dies_is_unknown(
    dev_cluster: Callable[..., DevCluster], registry: RegistryProcess
) -> None:
    cluster = dev_cluster()
    producer = new_producer(
        cluster.bootstrap, registry.url, "lost", client_config={"delivery.timeout.ms": 3000}
    )
    producer.send("lost", LINE)
    eventually(lambda: producer.counts()["lost"].acknowledged == 1, what="the first acknowledgement")
    cluster.kill_broker()
    for _ in range(10):
        producer.send("lost", LINE)
    counts = producer.close(seconds_max=10)["lost"]
    assert (counts.acknowledged, counts.failed + counts.unknown) == (1, 10)
    assert sum(counts.reasons.values()) == 10
    assert producer.monitoring_failures > 0
    with pytest.raises(ProducerClosedError):
        producer.send("lost", LINE)


def test_brokers_that_are_away_at_the_start_do_not_flood_the_log(
    registry: RegistryProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    producer = new_producer(f"127.0.0.1:{free_port()}", registry.url, "early")
    time.sleep(2)
    producer.close(seconds_max=0.5)
    assert 0 < capfd.readouterr().err.count("Connection refused") <= 20


def test_wrong_use_is_refused_in_a_sentence(broker: DevCluster, registry: RegistryProcess) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"topic": "other"}, "was not opened"),
        ({"fields": {"reason": 1}}, "does not fit"),
        ({"fields": {**LINE, "sise": 1}}, "did you mean `size`"),
        ({"fields": {**LINE, "header": {}}}, "`header` is filled by the producer"),
        ({"time_ms": 1.5e12}, "whole milliseconds"),
        ({"time_ms": int(time.time())}, "seconds"),
        ({"key": 5}, "bytes or text"),
    ]
    with new_producer(broker.bootstrap, registry.url, "own") as producer:
        for rest, sentence in wrong:
            with pytest.raises(EventError, match=sentence):
                producer.send(**{"topic": "own", "fields": LINE, **rest})
        assert producer.send("own", LINE, key="text") == 0, "a refused event uses no sequence"
        assert producer.flush(seconds_max=60) == 0
        assert producer.counts()["own"].acknowledged == 1
    check_accounts(broker.bootstrap, producer.producer_id, "own", [0])
    with pytest.raises(RegistrationError, match="check that it runs"):
        new_producer(broker.bootstrap, "http://127.0.0.1:1", "own", registry_seconds_max=0.2)


def test_topics_that_are_not_there_are_named_with_what_to_do(
    dev_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = dev_cluster(set={"auto.create.topics.enable": "false"})
    registry = RegistryProcess(tmp_path / "registry", cluster.bootstrap)
    config = {"topic.metadata.propagation.max.ms": 1000, "delivery.timeout.ms": 6000}

    def counts_of_one() -> Counts:
        with new_producer(cluster.bootstrap, registry.url, "orders", client_config=config) as producer:
            producer.send("orders", LINE)
            assert producer.flush(seconds_max=30) == 0
            return producer.close(seconds_max=2)["orders"]

    try:
        for missing in (MONITORING_TOPIC, "orders"):
            counts = counts_of_one()
            assert (counts.failed, counts.unknown) == (1, 0), counts
            assert f"topic {missing} does not exist: create it" in "".join(counts.reasons)
            create_topic(cluster.bootstrap, missing)
        assert counts_of_one().acknowledged == 1
    finally:
        registry.end()


def test_what_failed_before_the_monitoring_topic_was_there_is_accounted_once_it_is(
    dev_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = dev_cluster(set={"auto.create.topics.enable": "false"})
    create_topic(cluster.bootstrap, "orders")
    registry = RegistryProcess(tmp_path / "registry", cluster.bootstrap)
    config = {"topic.metadata.propagation.max.ms": 500, "delivery.timeout.ms": 2000}
    try:
        with new_producer(cluster.bootstrap, registry.url, "orders", client_config=config) as producer:
            failed = [producer.send("orders", LINE) for _ in range(3)]
            time.sleep(1.5)
            create_topic(cluster.bootstrap, MONITORING_TOPIC)
            assert producer.wait_until_opened(seconds_max=30)
            arrived = producer.send("orders", LINE)
        assert (producer.counts()["orders"].failed, producer.monitoring_failures) == (3, 0)
        events = check_accounts(cluster.bootstrap, producer.producer_id, "orders", [arrived])
        undelivered = [entry for event in events for entry in event.account.undelivered]
        assert sorted(at for each in undelivered for at in range(each[0], each[1] + 1)) == failed
    finally:
        registry.end()


def create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()


PROGRAM = """
import ctypes, multiprocessing, os, signal, sys
from headrace.events.avro_schemas import schema_text
from headrace.producer import Producer

LINE = {"reason": "r", "line": b"x", "size": 1, "sha256": ""}


def opened():
    return Producer(
        bootstrap=sys.argv[1], registry_url=sys.argv[2], schemas={sys.argv[3]: schema_text("rejected_line")},
        server="web-1", service="shop", datacenter="dc-east", window_size_ms=1000,
    )


def send(count=1):
    return [producer.send(sys.argv[3], LINE) for _ in range(count)]


"""


def run_program(broker: DevCluster, registry: RegistryProcess, topic: str, body: str) -> list[str]:
    """Run a program with a producer of one topic; return its lines."""
    command = [sys.executable, "-c", PROGRAM + body, broker.bootstrap, registry.url, topic]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def check_whole(bootstrap: str, topic: str, counts: dict[str, int]) -> None:
    """Each sequence of these producers is in one account, and what was acknowledged has arrived once."""
    headers = [decoded(each, "rejected_line")["header"] for each in read_all(bootstrap, topic)]
    events = [
        MonitoringEvent.from_record(decoded(message, "monitoring_event"))
        for message in read_all(bootstrap, MONITORING_TOPIC)
    ]
    for producer_id, count in counts.items():
        mine = [event for event in events if event.header.producer == producer_id]
        accounts = [event.account for event in sorted(mine, key=lambda event: event.header.sequence)]
        assert (accounts[-1].kind, accounts[-1].next_sequence) == ("closing", count)
        runs = [run for account in accounts for run in account.acknowledgements]
        ranges = [entry for account in accounts for entry in account.undelivered]
        acknowledged = [at for run in runs for at in range(run[0], run[1] + 1)]
        undelivered = [at for entry in ranges for at in range(entry[0], entry[1] + 1)]
        assert sorted(acknowledged + undelivered) == list(range(count))
        arrived = Counter(each["sequence"] for each in headers if each["producer"] == producer_id)
        assert set(acknowledged) <= set(arrived)
        assert not arrived or max(arrived.values()) == 1


INTERRUPTED = """
class Stop(Exception):
    pass


def on_alarm(number, frame):
    if closes:
        producer.close()
    raise Stop


signal.signal(signal.SIGALRM, on_alarm)
for turn in range(8):
    closes = turn % 2
    producer = opened()
    sent = send()
    signal.setitimer(signal.ITIMER_REAL, 0.005 + 0.002 * turn)
    try:
        while True:
            sent += send()
    except Stop:
        pass
    producer.close()
    print(producer.producer_id, producer.counts()[sys.argv[3]].total, len(sent))
"""


def test_a_signals_handler_may_close_the_producer_or_raise_inside_of_send(
    broker: DevCluster, registry: RegistryProcess
) -> None:
    lines = run_program(broker, registry, "interrupted", INTERRUPTED)
    assert len(lines) == 8
    counts = {}
    for producer_id, count, sent in map(str.split, lines):
        assert int(sent) <= int(count) <= int(sent) + 1
        counts[producer_id] = int(count)
    check_whole(broker.bootstrap, "interrupted", counts)


LEFT_OPEN = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
producer = opened()
send(50)
print(producer.producer_id)
if sys.argv[3] == "left":
    sys.exit()
if sys.argv[3] == "terminated":
    os.kill(os.getpid(), signal.SIGTERM)
    send(1)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("topic", ["left", "terminated"])
def test_a_program_that_exits_without_close_is_closed(
    broker: DevCluster, registry: RegistryProcess, topic: str
) -> None:
    [producer_id] = run_program(broker, registry, topic, LEFT_OPEN)
    check_whole(broker.bootstrap, topic, {producer_id: 50})
    assert count_of(broker.bootstrap, topic) == 50


def test_a_program_that_is_gone_at_once_has_been_announced(
    broker: DevCluster, registry: RegistryProcess
) -> None:
    [producer_id] = run_program(broker, registry, "gone", LEFT_OPEN)
    [opening, *_] = [event.account for event in accounts_of(broker.bootstrap, producer_id, "gone")]
    assert (opening.kind, opening.next_sequence) == ("heartbeat", 0)


FORKED = """
producer = opened()
send(5)


def child():
    assert send(7) == list(range(7))
    print(producer.producer_id, 7, flush=True)


print(producer.producer_id, 9, flush=True)
if (pid := os.fork()) == 0:
    child()
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0
if (pid := os.fork()) == 0:
    print(producer.producer_id, 0, flush=True)
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
assert send(4) == [5, 6, 7, 8]
producer.close()
if (pid := os.fork()) == 0:
    sys.exit()
assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_forked_process_has_a_producer_of_its_own(broker: DevCluster, registry: RegistryProcess) -> None:
    lines = [line.split() for line in run_program(broker, registry, "forked", FORKED)]
    assert len({producer_id for producer_id, _ in lines}) == 4
    check_whole(broker.bootstrap, "forked", {producer_id: int(count) for producer_id, count in lines[:3]})
    idle, _ = lines[3]
    assert not accounts_of(broker.bootstrap, idle, "forked"), "a child that sends nothing opens nothing"


FORKED_UNDER_A_LOCK = """
producer = opened()
assert send(1) == [0]
library = ctypes.CDLL(None)
library.on_exit(library.pause, None)
if (pid := os.fork()) == 0:
    library.printf(b"written by C\\n")
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
producer.close()
os._exit(0)
"""


def test_a_forked_process_ends_where_c_libraries_would_wait_for_threads_it_has_not(
    broker: DevCluster, registry: RegistryProcess
) -> None:
    assert run_program(broker, registry, "locked", FORKED_UNDER_A_LOCK) == ["written by C"]


def replay_command(bootstrap: str, url: str, log: Path, topic: str, *rest: str) -> list[str]:
    where = ["--bootstrap", bootstrap, "--registry", url, "--datacenter", "dc-east", "--topic", topic]
    return [HEADRACE, "replay", "--log", str(log), *where, "--window", "1", "--json", *rest]


def test_a_replay_publishes_what_parses_and_keeps_what_does_not(
    broker: DevCluster, registry: RegistryProcess, tmp_path: Path
) -> None:
    long = b"y" * 300_000
    rejects = [b"broken", b"\xff\xfe not utf-8", b"", long]
    log = tmp_path / "access.log"
    good = [
        GOOD.format(n=1).encode(),
        GOOD.format(n="café/日本").encode(),
        GOOD.format(n="z" * 50_000).encode(),
    ]
    log.write_bytes(b"\n".join(rejects) + b"\n" + b"".join(good))
    command = replay_command(broker.bootstrap, registry.url, log, "replayed", "--events", "100")
    result = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)
    assert (result["acknowledged"], result["rejected"], result["rejected_acknowledged"]) == (100, 4, 4)

    views = [decoded(message, "page_view") for message in read_all(broker.bootstrap, "replayed")]
    assert Counter(view["path"][:6] for view in views) == {"/1": 34, "/café/": 33, "/zzzzz": 33}
    assert {view["logged_at"].timestamp() for view in views} == {1431857103}
    assert sorted(view["header"]["sequence"] for view in views) == list(range(100))
    kept = [decoded(message, "rejected_line") for message in read_all(broker.bootstrap, "replayed.rejected")]
    kept.sort(key=lambda record: record["header"]["sequence"])
    assert [(each["line"], each["size"]) for each in kept] == [(line[:65536], len(line)) for line in rejects]
    assert [each["sha256"] for each in kept] == [hashlib.sha256(line).hexdigest() for line in rejects]
    check_accounts(broker.bootstrap, result["producer"], "replayed", list(range(100)))
    check_accounts(broker.bootstrap, result["producer"], "replayed.rejected", list(range(4)))


def test_a_replay_goes_on_through_a_broker_restart_without_loss_or_duplicates(
    dev_cluster: Callable[..., DevCluster], registry: RegistryProcess, tmp_path: Path
) -> None:
    address, data, log = f"127.0.0.1:{free_port()}", tmp_path / "data", tmp_path / "access.log"
    log.write_text("".join(GOOD.format(n=n) for n in range(100)))
    cluster = dev_cluster(listen=address, data=data)
    command = replay_command(address, registry.url, log, "through", "--events", "6000", "--rate", "2000")
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    eventually(lambda: count_of(address, "through") > 1000, what="a thousand events")
    cluster.kill_broker()
    cluster = dev_cluster(listen=address, data=data)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    result = json.loads(output)
    assert result["acknowledged"] == 6000
    views = [decoded(message, "page_view") for message in read_all(address, "through")]
    assert sorted(view["header"]["sequence"] for view in views) == list(range(6000))
    check_accounts(address, result["producer"], "through", list(range(6000)))


def test_sigterm_ends_a_replay_cleanly_with_its_closing_account(
    broker: DevCluster, registry: RegistryProcess, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    log.write_text(GOOD.format(n=1))
    command = replay_command(
        broker.bootstrap, registry.url, log, "stopped", "--events", "100000", "--rate", "200"
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: count_of(broker.bootstrap, "stopped") > 100, what="a hundred events")
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    result = json.loads(output)
    assert errors == f"Error: stopped after {result['published']} of 100000 events.\n"
    assert result["acknowledged"] == result["published"] > 0
    check_accounts(broker.bootstrap, result["producer"], "stopped", list(range(result["published"])))
