"""The command publishes what is left of killed producers of its datacenter, and keeps what was not delivered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaError, KafkaException

from headrace.events.monitoring import ProcessName
from headrace.producer import publish_accounts as command
from headrace.producer.spool import Spool, boot_id
from headrace.producer.spool_layout import Head, cluster_number

NOW = 1_700_000_000_000
HEAD = Head(
    producer="p",
    server="web-1",
    service="shop",
    datacenter="dc-east",
    bootstrap="elsewhere:9092",
    process=ProcessName("host-1", 4711, NOW - 5000),
    boot=boot_id(),
    window_size_ms=1000,
    topics=("t",),
    slots=64,
)


class Client:
    """Answers each message with the same outcome."""

    error: KafkaError | None = None
    topics: ClassVar[list[str]] = []
    is_reachable = True

    def __init__(self, _: object) -> None: ...

    def list_topics(self, _: str, *, timeout: float) -> SimpleNamespace:
        if not self.is_reachable:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(cluster_id="here")

    def produce(self, topic: str, *, on_delivery: Any, **_: Any) -> None:
        self.topics.append(topic)
        on_delivery(self.error, None)

    def flush(self, _: float) -> int:
        return 0


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    monkeypatch.setattr(command, "KafkaProducer", Client)
    monkeypatch.setattr(command, "register", lambda *_, **__: 1)
    monkeypatch.setattr(Client, "error", None)
    monkeypatch.setattr(Client, "topics", [])
    return Client


def run(folder: Path, *rest: str) -> Result:
    where = [
        "--bootstrap",
        "x:1",
        "--registry",
        "http://x",
        "--datacenter",
        "dc-east",
        "--spool",
        str(folder),
    ]
    return CliRunner().invoke(command.publish_accounts, [*where, *rest])


def left(folder: Path, cluster: str = "here", **rest: Any) -> None:
    spool = Spool(folder, replace(HEAD, **rest))
    spool.note_cluster(cluster_number(cluster))
    spool.rings["t"].on_sent(0, NOW)
    spool.leave()


def test_what_is_published_is_removed_and_others_are_left_alone(tmp_path: Path, client: type[Client]) -> None:
    left(tmp_path)
    left(tmp_path, producer="q", datacenter="dc-west")
    left(tmp_path, producer="r", service="till")
    done = run(tmp_path, "--service", "shop", "--json")
    (row,) = json.loads(done.stdout)
    assert (done.exit_code, row["producer"], row["pid"], row["acknowledged"], row["unknown"]) == (
        0,
        "p",
        4711,
        0,
        1,
    )
    assert client.topics == ["headrace.monitoring"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.spool", "r.spool"]
    assert "(producer r, process 4711 on host-1): 0 events acknowledged, 1 of which" in run(tmp_path).stdout
    assert run(tmp_path).stdout == "no producer that was killed has left anything to publish\n"


def test_what_was_told_to_another_cluster_is_kept(tmp_path: Path, client: type[Client]) -> None:
    left(tmp_path, "elsewhere")
    done = run(tmp_path)
    assert (done.exit_code, done.stdout) == (0, "no producer that was killed has left anything to publish\n")
    assert client.topics == []
    assert [path.name for path in tmp_path.iterdir()] == ["p.spool"]


def test_brokers_that_do_not_answer_are_named(
    tmp_path: Path, client: type[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path)
    monkeypatch.setattr(client, "is_reachable", False)
    done = run(tmp_path)
    assert done.exit_code == 1
    assert "none of x:1 answers" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["p.spool"]


def test_what_is_not_delivered_is_kept(tmp_path: Path, client: type[Client]) -> None:
    left(tmp_path)
    client.error = KafkaError(KafkaError._MSG_TIMED_OUT)
    done = run(tmp_path)
    assert done.exit_code == 1
    assert "the accounts of 1 producers were not delivered, their files are kept" in done.output
    assert "no producer" not in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["p.spool"]
