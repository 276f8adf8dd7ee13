"""The commands topics, produce and consume against a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import headrace
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from load_helpers import EVENT, EVENT_ID, GARBAGE, create_topic, event, framed, schemas_served
from processes import DevCluster, eventually, free_port
from registry_process import RegistryProcess

from headrace.cli import produce
from headrace.events.avro_schemas import schema_text
from headrace.producer import Producer

YEAR_50000_MS = 1_515_731_616_000_000
HEADRACE = str(Path(sys.executable).with_name("headrace"))


def run(cluster: DevCluster, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [HEADRACE, *arguments, "--bootstrap", cluster.bootstrap]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


def test_a_topic_is_created_described_listed_and_deleted(broker: DevCluster) -> None:
    created = run(broker, "topics", "create", "made", "--partitions", "3", "--set", "retention.ms=100000")
    assert (created.returncode, created.stdout) == (0, b"created made with 3 partitions\n")
    again = run(broker, "topics", "create", "made")
    assert (again.returncode, again.stderr.count(b"\n")) == (1, 1)
    described = json.loads(run(broker, "topics", "describe", "made", "--json").stdout)
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert described["configuration"] == {"retention.ms": "100000"}
    listed = json.loads(run(broker, "topics", "list", "--json").stdout)
    assert {"topic": "made", "partitions": 3, "replicas": 1, "marked_for_deletion": False} in listed
    assert run(broker, "topics", "delete", "made").returncode == 0
    gone = run(broker, "topics", "describe", "made")
    assert gone.returncode == 1
    assert gone.stderr.startswith(b"Error: topic made does not exist")


def test_a_topic_is_altered_as_far_as_it_is_not_so_already(broker: DevCluster) -> None:
    def alter(*arguments: str) -> dict[str, Any]:
        done = headrace("topics", "alter", "altered", *arguments, "--json", *here)
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def described() -> tuple[int, dict[str, str]]:
        found = json.loads(headrace("topics", "describe", "altered", "--json", *here).stdout)
        return len(found["partitions"]), found["configuration"]

    here = ("--bootstrap", broker.bootstrap)
    headrace(
        "topics", "create", "altered", "--set", "retention.ms=100000", "--set", "segment.bytes=2048", *here
    )
    wish = ("--set", "retention.ms=5000", "--unset", "segment.bytes", "--partitions", "3")
    changed = {"topic": "altered", "changed": {"retention.ms": "5000", "segment.bytes": None}}
    counts = {"partitions": 3, "partitions_before": 1}
    assert alter(*wish, "--dry-run") == {**changed, **counts}
    assert described() == (1, {"retention.ms": "100000", "segment.bytes": "2048"})
    assert alter(*wish) == {**changed, **counts}
    assert described() == (3, {"retention.ms": "5000"})
    assert alter(*wish) == {"topic": "altered", "changed": {}, "partitions": 3, "partitions_before": 3}
    for refused in (("--partitions", "2"), ("--partitions", "10001", "--set", "retention.ms=1")):
        done = headrace("topics", "alter", "altered", *refused, *here)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert described() == (3, {"retention.ms": "5000"})


def test_lines_are_published_and_read_back_from_the_beginning_and_by_a_group(broker: DevCluster) -> None:
    run(broker, "topics", "create", "lines")
    text = "one\nké:y\n\xff".encode("latin-1") + b"\nlast"
    published = run(broker, "produce", "lines", "--json", stdin=text)
    assert json.loads(published.stdout) == {"topic": "lines", "acknowledged": 4, "failed": 0}
    printed = run(broker, "consume", "lines", "--max", "4", "--timeout", "20")
    assert printed.stdout.decode().splitlines() == ["one", r"k\xe9:y", r"\xff", "last"]
    first = run(broker, "consume", "lines", "--group", "g", "--max", "2", "--timeout", "20")
    rest = run(broker, "consume", "lines", "--group", "g", "--max", "2", "--timeout", "20", "--json")
    assert first.stdout.splitlines()[0] == b"one"
    odd, last = map(json.loads, rest.stdout.splitlines())
    assert (odd["offset"], odd["value"], odd["value_base64"]) == (2, r"\xff", "/w==")
    assert (last["offset"], last["value"], "value_base64" in last) == (3, "last", False)
    more = run(broker, "consume", "lines", "--group", "g", "--max", "1", "--timeout", "3")
    assert (more.returncode, more.stderr) == (1, b"Error: only 0 of 1 messages came.\n")


def test_reading_begins_where_it_is_told_to_and_in_one_partition(broker: DevCluster) -> None:
    run(broker, "topics", "create", "places", "--partitions", "2")
    for partition, text in (("0", b"a\nb\nc\n"), ("1", b"d\n")):
        run(broker, "produce", "places", "--partition", partition, stdin=text)

    def read(*options: str) -> list[str]:
        done = headrace("consume", "places", *options, "--timeout", "1", "--bootstrap", broker.bootstrap)
        return [*done.stdout.splitlines(), *done.stderr.splitlines()[-1:]]

    assert read("--partition", "0", "--from", "1") == ["b", "c"]
    assert sorted(read("--from", "2020-01-01")) == ["a", "b", "c", "d"]
    assert read("--from", "latest") == []
    assert read("--partition", "7") == ["Error: consume places: it has no partition 7, only 0 to 1."]
    assert read("--from", "soon")[-1].startswith("Error: --from soon: write earliest, latest, an offset")
    assert read("--from", "latest", "--group", "g")[-1].endswith("`headrace groups reset` chooses.")


def test_keys_are_split_off_and_what_was_not_acknowledged_fails(broker: DevCluster) -> None:
    run(broker, "produce", "keyed", "--key-separator", "=", "--set", "acks=1", stdin=b"k=v=w\nnone\n")
    lines = run(broker, "consume", "keyed", "--max", "2", "--timeout", "20", "--json").stdout.splitlines()
    pairs = {(json.loads(line)["key"], json.loads(line)["value"]) for line in lines}
    assert pairs == {("k", "v=w"), (None, "none")}
    large = run(broker, "produce", "keyed", stdin=b"x" * 2_000_000 + b"\nsmall\n")
    assert large.returncode == 1
    assert large.stderr.splitlines()[-1].startswith(b"Error: 1 messages were not acknowledged (1: ")


def test_a_message_may_be_a_tombstone_with_headers_in_a_partition(broker: DevCluster) -> None:
    run(broker, "topics", "create", "formed", "--partitions", "2")
    form = [
        "--key-separator",
        ":",
        "--null",
        "NULL",
        "--header",
        "a=b=c",
        "--header",
        "d=",
        "--partition",
        "1",
    ]
    run(broker, "produce", "formed", *form, stdin=b"k:v\nk:NULL\nNULL:w\n")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "formed"})
    consumer.assign([TopicPartition("formed", 1, 0)])
    messages = consumer.consume(3, timeout=20)
    consumer.close()
    assert [(each.key(), each.value()) for each in messages] == [(b"k", b"v"), (b"k", None), (None, b"w")]
    assert messages[0].headers() == [("a", b"b=c"), ("d", b"")]
    wrong = run(broker, "produce", "formed", "--header", "a", stdin=b"")
    assert (wrong.returncode, wrong.stderr.splitlines()[-1]) == (2, b"Error: --header a: write NAME=VALUE.")


def test_a_line_that_is_too_long_ends_the_reading(
    broker: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "MESSAGE_LINE_SIZE_MAX", 4)
    here = ("--bootstrap", broker.bootstrap)
    done = headrace("produce", "short", "--json", *here, stdin="abc\nab\nabcd\nmore\n")
    assert json.loads(done.stdout) == {"topic": "short", "acknowledged": 2, "failed": 0}
    assert (done.returncode, done.stderr) == (
        1,
        "Error: Line 3 is longer than 4 bytes: shorten it, and publish what stands from it on.\n",
    )
    consumed = headrace("consume", "short", "--max", "2", "--timeout", "20", *here)
    assert consumed.stdout.split() == ["abc", "ab"]


def test_headers_are_printed_as_json(broker: DevCluster) -> None:
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap})
    producer.produce("headed", b"v", headers=[("a", "ké".encode()), ("a", b""), ("b", b"\xff"), ("c", None)])
    producer.produce("headed", b"w")
    assert producer.flush(20) == 0
    lines = run(broker, "consume", "headed", "--max", "2", "--timeout", "20", "--json").stdout.splitlines()
    headed, bare = (json.loads(line)["headers"] for line in lines)
    assert headed == [
        {"name": "a", "value": "ké"},
        {"name": "a", "value": ""},
        {"name": "b", "value": r"\xff", "value_base64": "/w=="},
        {"name": "c", "value": None},
    ]
    assert bare == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_read_before_an_interruption_is_published_and_told(
    broker: DevCluster, number: signal.Signals
) -> None:
    topic = f"cut-{number.name}"
    run(broker, "topics", "create", topic)
    command = [HEADRACE, "produce", topic, "--bootstrap", broker.bootstrap]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    end = TopicPartition(topic, 0)
    eventually(lambda: consumer.get_watermark_offsets(end, timeout=20)[1] == 1, what="the first message")
    consumer.close()
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said.decode()) == (130, f"1 messages acknowledged in {topic}\n")


def test_a_topic_that_is_not_there_and_is_not_created_is_told(dev_cluster: Callable[..., DevCluster]) -> None:
    cluster = dev_cluster(set={"auto.create.topics.enable": "false"})
    done = headrace("produce", "missing", "--bootstrap", cluster.bootstrap, stdin="x\n")
    assert done.returncode == 1
    assert done.stderr.endswith(
        "Error: 1 messages were not acknowledged (1: topic missing does not exist: create it, "
        "or have the brokers do so with auto.create.topics.enable=true).\n"
    )


def test_messages_that_no_broker_took_are_told_with_where_to_look() -> None:
    done = headrace(
        "produce",
        "t",
        "--bootstrap",
        f"127.0.0.1:{free_port()}",
        "--set",
        "delivery.timeout.ms=1000",
        stdin="x\n",
    )
    assert done.returncode == 1
    assert "Connection refused" in done.stderr
    assert done.stderr.endswith("check --bootstrap and that a broker runs there.\n")


def test_registered_events_are_decoded(broker: DevCluster, tmp_path: Path) -> None:
    registry = RegistryProcess(tmp_path / "log", broker.bootstrap)
    try:
        producer = Producer(
            bootstrap=broker.bootstrap,
            registry_url=registry.url,
            schemas={"framed": schema_text("rejected_line")},
            server="s",
            service="v",
            datacenter="d",
        )
        producer.send(
            "framed", {"reason": "why", "line": b"\xff", "size": 1, "sha256": ""}, time_ms=1_700_000_000_000
        )
        producer.close()
        arguments = ("consume", "framed", "--max", "1", "--timeout", "20", "--registry", registry.url)
        record = json.loads(run(broker, *arguments, "--json").stdout)
        assert record["value"]["reason"] == "why"
        assert record["value"]["header"]["time"] == "2023-11-14T22:13:20+00:00"
        assert record["value"]["line"] == "/w=="
        run(broker, "produce", "unframed", stdin=b"text\n")
        refused = run(
            broker, "consume", "unframed", "--max", "1", "--timeout", "20", "--registry", registry.url
        )
        assert (refused.returncode, refused.stderr.count(b"\n")) == (1, 1)
    finally:
        registry.end()


def test_counting_a_topic_that_is_not_there_once_is_told(broker: DevCluster) -> None:
    run(broker, "topics", "create", "there")
    wanted = ("--topics", "there,nosuchtopic,no.*such")
    counted = run(broker, "audit", "count", "--once", "--datacenter", "d", "--tier", "live", *wanted)
    told = b"Error: the cluster has no topic nosuchtopic and no no.*such; `headrace topics list` shows those it has."
    assert (counted.returncode, counted.stderr.splitlines()[-1]) == (1, told)


@pytest.mark.acceptance
def test_an_odd_time_is_a_number_and_what_does_not_decode_is_told_and_skipped_only_when_asked(
    broker: DevCluster,
) -> None:
    odd = {**event(1), "header": {**event(1)["header"], "time": YEAR_50000_MS}}
    values = [
        framed(EVENT_ID, EVENT, odd),
        GARBAGE,
        framed(99, EVENT, odd),
        framed(EVENT_ID, EVENT, event(2)),
    ]
    create_topic(broker.bootstrap, "odd", 1)
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce("odd", value)
    assert producer.flush(20) == 0
    with schemas_served({EVENT_ID: EVENT}) as registry:
        asked = ("consume", "odd", "--registry", registry, "--group", "odd", "--max", "2", "--json")
        first = run(broker, *asked, "--timeout", "20")
        again = run(broker, *asked, "--timeout", "20")
        skipping = run(broker, *asked, "--timeout", "3", "--skip-bad")
        rest = run(broker, *asked, "--timeout", "1")
    assert json.loads(first.stdout)["value"]["header"]["time"] == YEAR_50000_MS
    assert (first.returncode, first.stderr, again.stdout, again.stderr) == (
        1,
        first.stderr,
        b"",
        first.stderr,
    )
    assert first.stderr.startswith(b"Error: odd partition 0 offset 1 does not decode: ")
    assert first.stderr.endswith(b"; --skip-bad goes on behind such records.\n")
    assert json.loads(skipping.stdout)["value"]["header"]["time"] == "2023-11-14T22:13:20.002000+00:00"
    told = skipping.stderr.decode().splitlines()
    assert [line.split(" does not")[0] for line in told[:2]] == [
        "Skipped: odd partition 0 offset 1",
        "Skipped: odd partition 0 offset 2",
    ]
    assert told[2:] == ["records skipped: 2", "Error: only 1 of 2 messages came."]
    assert rest.stderr == b"Error: only 0 of 2 messages came.\n"
