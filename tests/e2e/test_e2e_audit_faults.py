"""The audit of real clusters, loads and tables: what is lost and doubled on purpose is named, and nothing else."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from audit_world import (
    DATACENTER,
    NOISE,
    TOPIC,
    VIEW,
    AuditWorld,
    end_offset,
    run_script,
    sequence_of,
    values_of,
)
from commands import headrace
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic
from load_helpers import create_topic
from processes import eventually, free_port
from zookeeper_process import ZooKeeperProcess

from headrace.broker.wire.batches import iter_batches
from headrace.events.avro_schemas import schema_text
from headrace.load.tables import load_table, open_catalog

CLICKS = f"{TOPIC}.clicks"
HEADRACE = str(Path(sys.executable).with_name("headrace"))
LINE = '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET /{n} HTTP/1.1" 200 1 "-" "-"\n'


@pytest.fixture
def world(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[AuditWorld]:
    world = AuditWorld(tmp_path, zookeeper)
    yield world
    world.end()


@pytest.fixture
def mirrored_world(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[AuditWorld]:
    world = AuditWorld(tmp_path, zookeeper, mirror=True)
    yield world
    world.end()


class LyingClient:
    """Stands for a client library that acknowledges what it never sent, and sends twice what it sent."""

    def __init__(self, client: Any, lost: set[int], doubled: set[int]) -> None:
        self._client = client
        self._lost = lost
        self._doubled = doubled

    def produce(self, topic: str, *, value: bytes, on_delivery: Callable[..., None], **rest: Any) -> None:
        sequence = sequence_of(value) if topic == TOPIC else -1
        if sequence in self._lost:
            on_delivery(None, None)
            return
        if sequence in self._doubled:
            self._client.produce(topic, value=value, **rest)
        self._client.produce(topic, value=value, on_delivery=on_delivery, **rest)

    def __len__(self) -> int:
        return len(self._client)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def changed(lost: set[int], doubled: set[int]) -> Callable[[list[Message]], list[bytes]]:
    """Return a copier's change: lost messages become noise, and noise becomes what is to be doubled."""
    left = set(doubled)

    def change(found: list[Message]) -> list[bytes]:
        values = values_of(found)
        doubles = [value for value in values if sequence_of(value) in left]
        left.difference_update(map(sequence_of, doubles))
        kept = [NOISE if sequence_of(value) in lost else value for value in values]
        for at, value in enumerate(values):
            if value == NOISE and doubles:
                kept[at] = doubles.pop()
        assert not doubles
        return kept

    return change


def change_table(world: AuditWorld, lost: set[int], doubled: set[int]) -> None:
    """Delete rows of the warehouse and add some again, as a person might."""
    table = load_table(open_catalog(str(world.warehouse)), TOPIC)
    rows = table.scan().to_arrow()
    sequences = [header["sequence"] for header in rows.column("header").to_pylist()]
    for sequence in lost:
        table.delete(f"header.sequence = {sequence}")
    table.append(rows.take([sequences.index(sequence) for sequence in sorted(doubled)]))


def named(report: dict[str, Any], producer: str) -> set[tuple[str, str, int, int, int]]:
    names = {(item["producer"], item["server"], item["service"]) for item in report["findings"]}
    assert names == {(producer, "web-1", "shop")}
    assert all(item["window_start"] for item in report["findings"])
    return {
        (item["kind"], item["hop"], item["first_sequence"], item["last_sequence"], item["count"])
        for item in report["findings"]
    }


@pytest.mark.acceptance
def test_names_what_each_hop_lost_and_doubled(world: AuditWorld) -> None:
    world.noise(3)
    producer = world.producer()
    life = producer._life
    assert life is not None
    life._client = LyingClient(life._client, {10, 11, 12, 300}, {20, 301})  # type: ignore[assignment]
    for number in range(500):
        if number == 400:
            # Windows have a second, and the watermark goes on to another one once all losses are accepted.
            time.sleep(1)
        producer.send(TOPIC, VIEW)
    producer.close()
    world.count("live")
    world.copy(changed({100, 101}, {110, 302}))
    world.count("offline")
    world.load()
    change_table(world, {200}, {210, 211})

    report = world.report()
    assert report["verdict"] == "loss"
    assert named(report, producer.producer_id) == {
        ("loss", "producer_to_live", 10, 12, 3),
        ("loss", "producer_to_live", 300, 300, 1),
        ("duplicate", "producer_to_live", 20, 20, 1),
        ("duplicate", "producer_to_live", 301, 301, 1),
        ("loss", "live_to_offline", 100, 101, 2),
        ("duplicate", "live_to_offline", 110, 110, 1),
        ("duplicate", "live_to_offline", 302, 302, 1),
        ("loss", "offline_to_warehouse", 200, 200, 1),
        ("duplicate", "offline_to_warehouse", 210, 211, 2),
    }
    totals = report["totals"]
    assert (totals["produced"], totals["lost"], totals["duplicated"]) == (500, 7, 6)
    assert (totals["live"], totals["offline"], totals["warehouse"]) == (498, 498, 499)
    check_accepted(world, report)
    check_recounted(world, report["findings"][0]["window_start"])
    check_reloaded(world, report)


def test_is_incomplete_until_every_tier_has_it_and_then_complete(world: AuditWorld) -> None:
    assert world.report()["verdict"] == "incomplete"
    producer = world.publish(200)
    world.count("live")
    world.copy()
    report = world.report()
    assert (report["verdict"], report["totals"]["live"], report["totals"]["under_way"]) == (
        "incomplete",
        200,
        200,
    )
    assert {item["producer"] for item in report["incomplete"]} == {producer}
    assert report["uncounted"] == [{"tier": "offline", "datacenter": DATACENTER, "topic": TOPIC}]
    assert [row["state"] for row in report["hops"] if row["topic"] == TOPIC] == [
        "judged",
        "unknown",
        "unknown",
    ]

    world.count("offline")
    world.load()
    report = world.report()
    assert (report["verdict"], report["findings"], report["incomplete"]) == ("complete", [], [])
    assert all(report["totals"][tier] == 200 for tier in ("produced", "live", "offline", "warehouse"))
    assert report["complete_until"] is not None
    assert report["negative_latencies"] == []
    for hop in ("producer_to_live", "live_to_offline", "offline_to_warehouse", "end_to_end"):
        latency = report["latency_seconds"][hop]
        assert 0 <= latency["p50"] <= latency["p99"] <= latency["max"]
        assert 0 <= latency["mean"] <= latency["max"]


@pytest.mark.long
def test_a_killed_producer_is_named_until_its_service_comes_back(
    world: AuditWorld, tmp_path: Path, spool_folder: Path
) -> None:
    log = tmp_path / "access.log"
    log.write_text("".join(LINE.format(n=n) for n in range(100)))
    where = [
        "--bootstrap",
        world.live.bootstrap,
        "--registry",
        world.registry.url,
        "--datacenter",
        DATACENTER,
    ]
    command = [HEADRACE, "replay", "--log", str(log), "--window", "1", *where]
    replay = subprocess.Popen([*command, "--events", "100000", "--rate", "500"], stderr=subprocess.DEVNULL)
    accounts = "headrace.monitoring"
    # The first are of a producer that has published nothing yet.
    eventually(lambda: end_offset(world.live.bootstrap, accounts, 0) > 6, what="accounts of events")
    replay.kill()
    replay.wait()
    catch_up(world)

    report = world.report()
    assert (report["verdict"], report["findings"]) == ("incomplete", [])
    assert report["totals"]["live"] == report["totals"]["warehouse"] >= report["totals"]["produced"] > 0
    reasons = [item for item in report["incomplete"] if item["topic"] == TOPIC]
    assert len(reasons) == 1
    assert reasons[0]["producer"]
    assert "has not closed" in reasons[0]["reason"]
    assert (reasons[0]["host"], reasons[0]["pid"]) == (socket.gethostname(), replay.pid)
    check_silence(world, reasons[0]["since"])
    check_return(world, command, where, spool_folder, reasons[0]["producer"])


def check_return(world: AuditWorld, command: list[str], where: list[str], folder: Path, killed: str) -> None:
    """The service's next start publishes what the killed one left, after which all is known; again, it changes nothing."""
    (left,) = folder.iterdir()
    assert left.stem == killed
    content = left.read_bytes()
    done = subprocess.run(
        [*command, "--events", "20"], check=True, capture_output=True, text=True, timeout=120
    )
    assert f"(producer {killed}, process" in done.stderr
    assert "its last accounts are published now" in done.stderr
    assert not list(folder.iterdir())
    catch_up(world)
    report = world.report()
    assert (report["verdict"], report["findings"], report["incomplete"]) == ("complete", [], [])
    totals = report["totals"]
    assert totals["live"] == totals["warehouse"] >= totals["produced"] > 0
    unknown = int(re.findall(r"and (\d+) of which nobody knows", done.stderr)[0])
    assert totals["unacknowledged"] == unknown - (totals["live"] - totals["produced"])

    left.write_bytes(content)
    publish = [HEADRACE, "publish-accounts", "--json", *where]
    (again,) = json.loads(subprocess.run(publish, check=True, capture_output=True, timeout=120).stdout)
    assert (again["producer"], again["service"]) == (killed, "web")
    assert not list(folder.iterdir())
    catch_up(world)
    report = world.report()
    assert (report["verdict"], report["totals"], report["findings"]) == ("complete", totals, [])


def catch_up(world: AuditWorld) -> None:
    """Let everything get to the end of the road."""
    world.count("live")
    world.copy()
    world.count("offline")
    world.load()


def check_silence(world: AuditWorld, whole_until: str) -> None:
    """Once the killed producer counts as silent, the watermark goes on, and only its last windows are unknown."""
    assert world.report()["topics"][0]["complete_until"] == whole_until
    time.sleep(2)
    world.publish(10)
    catch_up(world)
    silent = ("--silent-after", "1")
    report = world.report(*silent)
    assert report["complete_until"] > whole_until
    (unknown,) = (item for item in report["incomplete"] if item["topic"] == TOPIC)
    assert "went silent" in unknown["reason"]
    assert report["verdict"] == "incomplete"
    assert {item["verdict"] for item in report["windows"]} == {"incomplete"}
    before = world.report(*silent, "--until", min(item["since"] for item in report["incomplete"]))
    assert (before["verdict"], before["incomplete"]) == ("complete", [])
    assert before["totals"]["produced"] <= report["totals"]["produced"]


@pytest.mark.long
def test_events_that_timed_out_while_the_broker_stood_still_are_neither_lost_nor_doubled(
    world: AuditWorld,
) -> None:
    config = {"delivery.timeout.ms": 3000, "socket.timeout.ms": 1500}
    broker = world.live.broker_process()
    with world.producer(client_config=config) as producer:
        producer.send(TOPIC, VIEW)
        assert producer.flush(seconds_max=30) == 0
        broker.suspend()
        try:
            for _ in range(100):
                producer.send(TOPIC, VIEW)
                time.sleep(0.05)
            eventually(lambda: producer.counts()[TOPIC].unknown >= 50, what="events that time out")
        finally:
            broker.resume()
        for _ in range(20):
            producer.send(TOPIC, VIEW)
    counts = producer.counts()[TOPIC]
    catch_up(world)
    report = world.report()
    totals = report["totals"]
    assert (report["verdict"], report["findings"]) == ("complete", [])
    assert totals["produced"] == counts.acknowledged <= totals["live"] == totals["warehouse"]
    assert totals["live"] + totals["unacknowledged"] == counts.total == 121


@pytest.mark.long
@pytest.mark.timeout(600)
def test_restarts_leave_no_finding(mirrored_world: AuditWorld, tmp_path: Path) -> None:
    """Counters are killed while they count, the real mirror copies, an auditor keeps its ledger and is stopped."""
    world = mirrored_world
    listeners = {tier: f"127.0.0.1:{free_port()}" for tier in ("live", "offline")}

    def counter_of(tier: str) -> subprocess.Popen[bytes]:
        log = tmp_path / f"{tier}.log"
        return world.counter(tier, log, options=["--metrics-listener", listeners[tier]])

    counters = {tier: counter_of(tier) for tier in listeners}
    try:
        for _ in range(3):
            world.publish(300)
            for tier, counter in counters.items():
                counter.kill()
                counter.wait()
                counters[tier] = counter_of(tier)
        with world.producer() as producer:
            producer.send(f"{TOPIC}.rejected", {"reason": "r", "line": b"x", "size": 1, "sha256": ""})

        def arrived() -> bool:
            world.load()
            report = world.report()
            return bool(report["totals"]["warehouse"] == 900 and report["verdict"] == "complete")

        eventually(arrived, timeout_s=180, what="a complete report", every_s=2)
        for listener in listeners.values():
            assert page(listener, "/ready").startswith('{"ready": true')
            assert re.search(
                r'^headrace_counter_lag_offsets\{topic="\S*pageviews"} 0.0$', page(listener), re.MULTILINE
            )
    finally:
        for counter in counters.values():
            counter.send_signal(signal.SIGTERM)
    assert [counter.wait(20) for counter in counters.values()] == [0, 0]
    report = world.report()
    assert (report["findings"], report["totals"]["rejected"]) == ([], 1)
    check_ledger(world, tmp_path / "state", report)
    check_page(world, tmp_path)
    check_headers(world)


@pytest.mark.long
def test_what_compaction_removed_of_a_new_topic_is_no_loss(
    mirrored_world: AuditWorld, tmp_path: Path
) -> None:
    """The topic is made after its counter began, and compacted before it is counted where it was published."""
    world, topic = mirrored_world, f"{TOPIC}.state"
    counter = world.counter("offline", tmp_path / "offline.log", f"{TOPIC}.*")
    try:
        config = {"cleanup.policy": "compact", "segment.bytes": "10000", "min.cleanable.dirty.ratio": "0.01"}
        admin = AdminClient({"bootstrap.servers": world.live.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(20)
        for _ in range(4):
            with world.producer(schemas={topic: schema_text("page_view")}) as producer:
                for number in range(50):
                    producer.send(topic, VIEW, key=b"%d" % (number % 5))
        compacted = re.compile(rf"log compacted.*{re.escape(topic)}-0\b")
        eventually(lambda: bool(compacted.search(world.live.broker_log())), what="a compaction")
        world.count("live", f"{TOPIC}.*")

        def arrived() -> bool:
            world.load(topic)
            return bool(world.report()["verdict"] == "complete")

        eventually(arrived, timeout_s=60, what="a complete report")
    finally:
        counter.send_signal(signal.SIGTERM)
    assert counter.wait(20) == 0
    report = world.report()
    (row,) = report["topics"]
    assert (row["topic"], row["produced"], row["lost"], report["findings"]) == (topic, 200, 0, [])
    assert 0 < row["compacted"] == 200 - row["live"]
    assert report["uncounted"] == []


def page(listener: str, path: str = "/metrics") -> str:
    """A page of a process that has the listener; raises HTTPError where it answers anything but 200."""
    with urllib.request.urlopen(f"http://{listener}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def check_ledger(world: AuditWorld, state: Path, report: dict[str, Any]) -> None:
    """A report on the auditor's ledger says the same as one that reads everything."""
    command = [HEADRACE, "audit", "watch", "--bootstrap", world.offline.bootstrap, "--interval", "1"]
    command += ["--warehouse", str(world.warehouse), "--state", str(state)]
    listener = f"127.0.0.1:{free_port()}"
    auditor = subprocess.Popen([*command, "--metrics-listener", listener], stderr=subprocess.DEVNULL)
    ledger = state / "ledger.json"
    eventually(lambda: ledger.exists() and json.loads(ledger.read_text())["files"], what="a ledger")
    assert page(listener, "/ready").startswith('{"ready": true')
    assert re.search(r'^headrace_audit_warehouse\{\S*topic="pageviews"} 900.0$', page(listener), re.MULTILINE)
    auditor.terminate()
    assert auditor.wait(20) == 0
    kept = world.report("--state", str(state))
    assert kept["totals"] == report["totals"]
    assert kept["latency_seconds"] == report["latency_seconds"]
    assert kept["complete_until"] == report["complete_until"]
    (state / "ledger.json").write_text('{"version": 1}')
    assert json.loads((state / "watermarks.json").read_text())["watermarks"]
    assert world.report("--state", str(state))["complete_until"] == report["complete_until"]


def check_headers(world: AuditWorld) -> None:
    """What an unmodified client publishes is audited by batch headers: complete, then without a batch that the copy lacks."""
    create_topic(world.live.bootstrap, CLICKS, 1)
    publish_clicks(world, 4)
    row = header_row(world, 200)
    assert (row["live"], row["offline"], row["live_bytes"]) == (200, 200, row["offline_bytes"])
    assert (row["verdict"], row["producer_to_live"]) == ("complete", "nobody claims it")
    report = world.report()
    assert (report["verdict"], report["findings"]) == ("complete", [])
    assert ">nobody claims it<" in (world.home / "report" / "report.html").read_text(encoding="utf-8")

    copy = f"{DATACENTER}.{CLICKS}"
    mirror("pause", copy, "--bootstrap", world.offline.bootstrap)
    status = ("mirror", "status", "--json", "--bootstrap", world.offline.bootstrap)
    eventually(lambda: '"paused"' in headrace(*status).stdout, what="the pause")
    # What was asked for before it may still come.
    time.sleep(2)
    publish_clicks(world, 3)
    world.count("live", modes=f"{CLICKS}=headers")
    flip(world.live.data, CLICKS, 250)
    mirror("resume", copy, "--bootstrap", world.offline.bootstrap)
    where = (copy, "0", "--offsets", "250-299", "--bootstrap", world.offline.bootstrap)
    eventually(lambda: mirror("skip", *where, check=False), what="the rot, which is passed over")
    row = header_row(world, 350)
    assert (row["live"], row["offline"], row["lost"], row["verdict"]) == (350, 300, 50, "loss")
    report = world.report()
    (found,) = (item for item in report["findings"] if "no batch there" in item.get("reason", ""))
    assert (found["kind"], found["hop"], found["topic"]) == ("loss", "live_to_offline", CLICKS)
    assert (found["partition"], found["first_offset"], found["last_offset"]) == (0, 250, 299)
    assert found["window_start"]


def publish_clicks(world: AuditWorld, batches: int) -> None:
    """Publish batches of 50 with a client that knows nothing of headrace."""
    client = KafkaProducer(
        {"bootstrap.servers": world.live.bootstrap, "enable.idempotence": True, "linger.ms": 1000}
    )
    for _ in range(batches):
        for number in range(50):
            client.produce(CLICKS, value=b"click %d" % number, partition=0)
        assert client.flush(30) == 0


def header_row(world: AuditWorld, end: int) -> dict[str, Any]:
    """Wait until both counters are at the topic's end, and return what the report says of it."""
    copy = f"{DATACENTER}.{CLICKS}"

    def is_copied() -> bool:
        return (
            copy in topics_of(world.offline.bootstrap) and end_offset(world.offline.bootstrap, copy, 0) == end
        )

    eventually(is_copied, timeout_s=60, what="the copy")
    for tier in ("live", "offline"):
        world.count(tier, modes=f"{CLICKS}=headers")

    def row() -> dict[str, Any] | None:
        rows = world.report()["header_topics"]
        return rows[0] if rows and not rows[0]["under_way"] and rows[0]["live"] == end else None

    eventually(lambda: row() is not None, timeout_s=60, what="the live counts")
    found = row()
    assert found is not None
    return found


def topics_of(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics)


def mirror(*arguments: str, check: bool = True) -> bool:
    done = headrace("mirror", *arguments)
    assert not check or done.returncode == 0, done.stderr[-2000:]
    return done.returncode == 0


def flip(data: Path, topic: str, offset: int) -> None:
    """Flip a bit of the batch at an offset in the segment of a live cluster."""
    (path,) = data.glob(f"broker-*/**/{topic}-0/*.log")
    content = path.read_bytes()
    at = next(at + header.size - 1 for at, header in iter_batches(content) if header.base_offset == offset)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([content[at] ^ 1]))


def check_accepted(world: AuditWorld, before: dict[str, Any]) -> None:
    """All losses are accepted, for as long as nobody takes that back; they no longer hold the watermark."""
    losses = {item["id"] for item in before["findings"] if item["kind"] == "loss"}
    run_script("audit_accept.sh", world, world.home, FINDING=" ".join(losses))
    told = json.loads((world.home / "accepted" / "report.json").read_text())
    assert {item["id"] for item in told["findings"] if item["accepted"]} == losses
    assert (told["verdict"], told["open_verdict"], told["totals"]["lost"]) == ("loss", "duplicates", 7)
    assert told["complete_until"] > before["complete_until"]
    shown = (world.home / "accepted" / "report.html").read_text()
    assert "the disk of broker 2 is lost" in shown
    assert not any(item["accepted"] for item in world.report()["findings"])
    command = ["accept", "unknown", "--reason", "x", "--by", "y", "--bootstrap", world.offline.bootstrap]
    refused = headrace("audit", *command, "--warehouse", str(world.warehouse))
    assert refused.returncode == 1
    assert "no finding has the id unknown" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def check_recounted(world: AuditWorld, window: str) -> None:
    """A window is counted again from logs and table, and agrees with the ledger, lost and doubled ones included."""
    done = run_script("audit_recount.sh", world, world.home, WINDOW=window)
    told = json.loads(done.stdout)
    assert [tier["tier"] for tier in told["tiers"]] == ["offline", "live", "warehouse"]
    assert {tier["verdict"] for tier in told["tiers"]} == {"agrees"}
    assert all(tier["events"] > 0 for tier in told["tiers"])


def check_reloaded(world: AuditWorld, before: dict[str, Any]) -> None:
    """Windows whose rows are wrong are loaded again from the offline log, in one commit, and a dry run changes nothing."""
    at_fault = [item for item in before["findings"] if item["hop"] == "offline_to_warehouse"]
    variables = {"REGISTRY": world.registry.url}
    told: list[dict[str, Any]] = []
    for window in sorted({item["window_start"] for item in at_fault}):
        done = run_script("audit_reload.sh", world, world.home, WINDOW=window, **variables)
        dry, real = map(json.loads, done.stdout.splitlines())
        assert {**dry, "dry_run": False} == real
        told.append(real)
    assert (sum(item["added"] for item in told), sum(item["removed"] for item in told)) == (1, 2)
    report = world.report()
    assert {item["id"] for item in before["findings"]} - {item["id"] for item in report["findings"]} == {
        item["id"] for item in at_fault
    }
    assert report["totals"]["warehouse"] == report["totals"]["offline"]


def check_page(world: AuditWorld, home: Path) -> None:
    done = run_script("audit_page.sh", world, home)
    assert b"matplotlib" not in done.stderr.lower()
    assert (home / "report" / "report.html").exists()
    now, before = (
        json.loads((home / name).read_text()) for name in ("report-of-now.json", "report/report.json")
    )
    assert now["totals"] == before["totals"]
    assert now["totals"]["live"] > 0


@pytest.mark.acceptance
def test_the_page_fetches_nothing_and_shows_the_numbers(world: AuditWorld) -> None:
    world.offline_behind_ms = 3_600_000
    producer = world.publish(123)
    world.count("live")
    world.copy()
    world.load()
    report = world.report()
    (negative,) = report["negative_latencies"]
    assert (negative["hop"], negative["count"], negative["is_certain"]) == ("live_to_offline", 123, True)
    assert (negative["from_host"], negative["to_host"]) == ("web-1", "127.0.0.1")
    assert 3500 < negative["skew_seconds"] < 3600
    assert report["latency_seconds"]["live_to_offline"] is None
    shown = (world.home / "report" / "report.html").read_text(encoding="utf-8")
    assert producer in shown
    assert '<b><a href="#topics">123</a></b>' in shown
    assert "the clock of web-1 is ahead of the clock of 127.0.0.1" in shown
    assert report["verdict"] == "incomplete"
    assert ">123 unknown<" in shown
    assert not any(mark in shown for mark in ('src="', "url(http", "@import", "<link", "<script"))
    check_groups(world)


def check_groups(world: AuditWorld) -> None:
    """A group that read a part of the fuller partition, and which retention overtakes there; one that nobody asks for."""
    ends = [end_offset(world.live.bootstrap, TOPIC, partition) for partition in (0, 1)]
    fuller = ends.index(max(ends))
    read = [end - 5 if partition == fuller else end for partition, end in enumerate(ends)]
    for group, offsets in (("billing", read), ("others", [0])):
        consumer = Consumer({"bootstrap.servers": world.live.bootstrap, "group.id": group})
        places = [TopicPartition(TOPIC, partition, offset) for partition, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
    (row,) = groups_told(world, code=0)
    assert (row["group"], row["topic"], row["read"], row["unread"], row["lost"]) == (
        "billing",
        TOPIC,
        118,
        5,
        0,
    )
    assert row["whole_up_to_ms"] > 0
    gone = TopicPartition(TOPIC, fuller, ends[fuller] - 2)
    admin = AdminClient({"bootstrap.servers": world.live.bootstrap})
    admin.delete_records([gone])[gone].result(20)
    (row,) = groups_told(world, code=1)
    assert (row["read"], row["unread"], row["lost"]) == (118, 2, 3)
    assert sum(count for _, count in row["lost_windows"]) == 3


def groups_told(world: AuditWorld, *, code: int) -> list[dict[str, Any]]:
    done = run_script("audit_groups.sh", world, world.home, code)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["groups"]
    return rows
