"""How long the end of a producer's life takes, by a clock that only the client's waiting moves."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from fastavro import schemaless_reader

from headrace.events.avro_schemas import MONITORING_TOPIC, parsed_schema, schema_text
from headrace.events.monitoring import Account, Acknowledgement, MonitoringEvent
from headrace.producer import life as life_module
from headrace.producer.author import this_process
from headrace.producer.life import Life, Outgoing, ProducerClosedError, Settings
from headrace.producer.stream import Encoder

LINE = {"reason": "r", "line": b"x", "size": 1, "sha256": ""}


class Clock:
    """Stands for the module `time`: whoever waits moves it."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return round((1_700_000_000 + self.now) * 1e9)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Client:
    """A client without brokers: it keeps all messages until they are purged."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_reachable = False
        self.knows_topics = True
        self.cluster_id = "here"
        self.events: list[MonitoringEvent] = []
        self.kept: list[Callable[[KafkaError | None, Any], None]] = []
        self.purged: list[Callable[[KafkaError | None, Any], None]] = []

    def __len__(self) -> int:
        return len(self.kept) + len(self.purged)

    def produce(self, topic: str, *, value: bytes, on_delivery: Any, **_: Any) -> None:
        if not self.knows_topics:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
        if topic == MONITORING_TOPIC and self.is_reachable:
            record: Any = schemaless_reader(io.BytesIO(value[5:]), parsed_schema("monitoring_event"), None)
            self.events.append(MonitoringEvent.from_record(record))
            on_delivery(None, None)
        else:
            self.kept.append(on_delivery)

    def list_topics(self, _: str, *, timeout: float) -> SimpleNamespace:
        if not self.is_reachable:
            self.clock.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(cluster_id=self.cluster_id)

    def flush(self, seconds: float) -> int:
        purged, self.purged = self.purged, []
        for on_delivery in purged:
            on_delivery(KafkaError(KafkaError._PURGE_QUEUE), None)
        if self.kept:
            self.clock.sleep(seconds)
        return len(self)

    def purge(self) -> None:
        self.purged, self.kept = self.kept, []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(life_module, "time", clock)
    monkeypatch.setattr(life_module, "KafkaProducer", lambda _: Client(clock))
    unstarted = SimpleNamespace(Thread=lambda **_: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(life_module, "threading", unstarted)
    return clock


def new_life(producer: str = "p", folder: Path | None = None, *, delivery_ms: int = 120_000) -> Life:
    encoder = Encoder(schema_text("rejected_line"), 1)
    config = {"delivery.timeout.ms": delivery_ms}
    monitoring = Encoder(schema_text("monitoring_event"), 2)
    return Life(producer, Settings("s", "v", "d", 1000, config, {"t": encoder}, monitoring, folder))


def test_a_monitoring_topic_that_is_not_there_is_named_with_what_to_do(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    life = new_life()
    stream = life.streams["t"]
    life._put(stream, [stream.opened(0)])
    life._publish()
    client: Any = life._client
    client.kept.pop()(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), None)
    life.send("t", LINE, None, None)
    stream.settle()
    sentence = f"topic {MONITORING_TOPIC} does not exist: create it"
    assert sentence in caplog.text
    [reason] = stream.counts.reasons
    assert sentence in reason


def test_accounts_wait_until_the_monitoring_topic_is_there(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    life = new_life()
    stream, client = life.streams["t"], cast(Any, life._client)
    client.is_reachable, client.knows_topics = True, False
    life._put(stream, [stream.opened(0), *stream.finished(life_module.now_ms() + 10_000)])
    for _ in range(3):
        life._publish()
    assert (len(client.events), life.monitoring_failures) == (0, 0)
    assert caplog.text.count("does not exist: create it") == 1
    client.knows_topics = True
    life._publish()
    assert [event.header.sequence for event in client.events] == [0, 1]


def test_no_more_accounts_than_the_bound_wait_for_the_monitoring_topic(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life_module, "UNPUBLISHED_MAX", 2)
    life = new_life()
    stream, client = life.streams["t"], cast(Any, life._client)
    client.knows_topics = False
    life._put(stream, [stream.opened(0)] * 5)
    life._publish()
    assert (len(life._unpublished), life.monitoring_failures) == (2, 3)


def test_the_end_does_not_wait_for_a_monitoring_topic_that_is_not_there(clock: Clock) -> None:
    life = new_life()
    stream, client = life.streams["t"], cast(Any, life._client)
    client.is_reachable, client.knows_topics = True, False
    life._put(stream, [stream.opened(0)])
    life._publish()
    begin = clock.now
    life.start_closing(begin + 130)
    life._finish()
    assert (clock.now - begin < 1, life.monitoring_failures) == (True, 2)


@pytest.mark.parametrize("seconds", [0.0, 2.0, 130.0])
def test_the_end_keeps_its_limit_without_brokers(clock: Clock, seconds: float) -> None:
    life = new_life()
    life.streams["t"].is_announced = True
    for _ in range(3):
        life.send("t", LINE, None, None)
    begin = clock.now
    life.start_closing(begin + seconds)
    life._finish()
    assert clock.now - begin <= seconds + 0.001
    counts = life.streams["t"].counts
    assert (counts.acknowledged, counts.failed + counts.unknown) == (0, 3)
    assert life.monitoring_failures > 0
    assert len(life._client) == 0, "what a client still has keeps it, and its threads, alive for good"


def test_no_event_leaves_before_the_opening_heartbeat_was_acknowledged(clock: Clock) -> None:
    life = new_life()
    begin = clock.now
    life.send("t", LINE, None, None)
    assert 120 <= clock.now - begin < 121
    waited = clock.now
    life.send("t", LINE, None, None)
    assert clock.now - waited < 1, "after the opening's time each event fails at once"
    assert len(life._client) == 0
    stream = life.streams["t"]
    stream.settle()
    assert stream.counts.failed == 2
    assert "opening heartbeat" in next(iter(stream.counts.reasons))
    life._on_monitoring_delivery(Outgoing(life._author, "t", stream.opened(0)), None, None)
    life.send("t", LINE, None, None)
    assert len(life._client) == 1


def test_a_delivery_time_out_of_0_is_without_end(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    life = new_life(delivery_ms=0)

    def sleep(_: float) -> None:
        clock.now += 1
        life.streams["t"].is_announced = clock.now > 5000

    monkeypatch.setattr(clock, "sleep", sleep)
    life.send("t", LINE, None, None)
    assert len(life._client) == 1


def killed_life(folder: Path, cluster_id: str = "here") -> tuple[str, ...]:
    """Leave the spool of a life of which two events were acknowledged, one of them in a delivered account."""
    life = new_life("dead", folder)
    client: Any = life._client
    client.is_reachable, client.cluster_id = True, cluster_id
    assert life._reach(1)
    client.is_reachable = False
    stream = life.streams["t"]
    stream.is_announced = True
    for _ in range(3):
        life.send("t", LINE, None, None)
    for sequence in (0, 1):
        stream.on_delivery(sequence, 1_700_000_000_000)(None, None)
        stream.settle()
    account = Account(**{**BARE, "acknowledgements": (Acknowledgement(0, 0, 0),)})
    life._on_monitoring_delivery(Outgoing(life._author, "t", account), None, None)
    stream.settle()
    assert life._spool is not None
    life._spool.leave()
    return tuple(path.name for path in folder.iterdir())


BARE: dict[str, Any] = {
    "kind": "window",
    "window_start": 0,
    "window_size_ms": 1000,
    "first_sequence": 0,
    "last_sequence": 0,
    "count": 1,
    "fingerprint": 0,
    "undelivered": (),
    "complete_until": 0,
    "next_sequence": 1,
}


def test_a_life_publishes_what_one_that_was_killed_left_and_removes_it_then(
    clock: Clock, tmp_path: Path
) -> None:
    assert killed_life(tmp_path) == ("dead.spool",)
    life = new_life("p", tmp_path)
    life.start_closing(clock.now)
    life._finish()
    assert {path.name for path in tmp_path.iterdir()} == {"dead.spool", "p.spool"}, (
        "nothing of either was delivered"
    )

    life = new_life("q", tmp_path)
    client: Any = life._client
    client.is_reachable = True
    life.start_closing(clock.now + 10)
    life._finish()
    assert not list(tmp_path.iterdir()), "all is told of this life, and of both before it"
    dead = [event for event in client.events if event.header.producer == "dead"]
    assert [event.account.kind for event in dead] == ["window", "closing"]
    runs = [run[:2] for event in dead for run in event.account.acknowledgements]
    unknown = [entry[:3] for event in dead for entry in event.account.undelivered]
    assert (runs, unknown) == ([(1, 1)], [(2, 2, "unknown")])
    assert dead[-1].account.next_sequence == 3
    assert {(event.header.server, event.header.service, event.datacenter) for event in dead} == {
        ("s", "v", "d")
    }
    assert dead[0].process == this_process()


def test_what_was_told_to_another_cluster_is_not_told_to_this_one(
    clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed_life(tmp_path, "elsewhere")
    life = new_life("q", tmp_path)
    client: Any = life._client
    client.is_reachable = True
    life.start_closing(clock.now + 10)
    life._finish()
    assert [path.name for path in tmp_path.iterdir()] == ["dead.spool"]
    assert {event.header.producer for event in client.events} == {"q"}
    assert "it is about another cluster" in caplog.text


def test_an_event_is_not_handed_out_once_the_life_closes(clock: Clock) -> None:
    life = new_life()
    life.start_closing(clock.now)
    with pytest.raises(ProducerClosedError):
        life.send("t", LINE, None, None)
    assert life.streams["t"].next_sequence == 0
