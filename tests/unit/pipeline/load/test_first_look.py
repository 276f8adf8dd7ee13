"""What `headrace load --once` says before it begins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.wire.client.login import LoginError
from headrace.broker.wire.partitions import TopicPartition
from headrace.load import command, first_look

PLACE = TopicPartition("dc-east.orders", 0)


class Brokers:
    """A `LogClient` whose first answers are failures."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.questions = 0

    def partitions(self, wanted: Callable[[str], bool]) -> list[TopicPartition]:
        self.questions += 1
        if self._failures:
            raise self._failures.pop(0)
        return [PLACE] if wanted(PLACE.topic) else []

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "PAUSE_SECONDS", 0.0)


def load(monkeypatch: pytest.MonkeyPatch, warehouse: Path, brokers: Brokers, topics: str) -> Result:
    monkeypatch.setattr(command, "LogClient", lambda *_, **__: brokers)
    monkeypatch.setattr(command, "_stop_on_signals", lambda _: None)
    options = ["--once", "--bootstrap", "h:1", "--registry", "http://h:2", "--warehouse", str(warehouse)]
    return CliRunner().invoke(command.load, [*options, "--topics", topics])


def test_a_pattern_without_a_topic_is_told_and_no_warehouse_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = load(monkeypatch, tmp_path / "warehouse", Brokers(), "dc-east.order")
    assert done.exit_code == 1
    assert "no topic of the cluster matches --topics dc-east.order;" in done.stderr
    assert not (tmp_path / "warehouse").exists()


def test_brokers_that_never_answer_end_it_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(first_look, "BROKERS_WAIT_SECONDS", 0.0)
    brokers = Brokers(ConnectionFailedError("no broker of h:1 accepts a connection"))
    done = load(monkeypatch, tmp_path / "warehouse", brokers, ".*")
    assert done.exit_code == 1
    assert "nothing was loaded: no broker of h:1" in done.stderr


def test_brokers_that_restart_are_waited_for_and_said_so_once(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers(*(ConnectionFailedError("no broker of h:1 accepts a connection") for _ in range(3)))
    assert first_look.has_topics(brokers, lambda name: name == PLACE.topic, threading.Event())
    assert brokers.questions == 4
    assert caplog.text.count("waiting for the brokers") == 1


def test_brokers_that_do_not_let_in_are_not_waited_for() -> None:
    refused = ConnectionFailedError("the password is wrong")
    refused.__cause__ = LoginError("the password is wrong")
    brokers = Brokers(refused)
    with pytest.raises(ConnectionFailedError):
        first_look.has_topics(brokers, lambda _: True, threading.Event())
    assert brokers.questions == 1


def test_a_stop_ends_the_wait() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(ConnectionFailedError):
        first_look.has_topics(Brokers(ConnectionFailedError("no broker")), lambda _: True, stop)
