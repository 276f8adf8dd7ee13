"""What the cells of fail-over and idleness are made of: the bystander, who leads, how often a process wakes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import psutil
import pytest

from bench import generator
from bench.bystander import RATE, Bystander
from bench.leaders import Leaders
from bench.machine import running_seconds, wake_ups
from bench.peers import Peer, headrace

WAKING = "import time\nfor _ in range(50): time.sleep(0.001)\nprint(flush=True)\ninput()"


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with headrace(tmp_path_factory.mktemp("broker")) as running:
        yield running


def test_a_bystander_felt_what_was_due_meanwhile(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    lines = [f"{10 + n / RATE:.6f} {900 if n < RATE else n % 100}" for n in range(3 * RATE)]
    trace.write_text("\n".join(lines))
    felt = Bystander(trace)
    assert felt.p99_ms(11, 13) == pytest.approx(99, abs=1)
    assert felt.p99_ms(10, 12) == 900
    with pytest.raises(click.ClickException, match="the bystander has 0 messages"):
        felt.p99_ms(20, 22)


@pytest.mark.acceptance
def test_a_load_that_is_ended_tells_of_each_message_that_counts(peer: Peer, tmp_path: Path) -> None:
    program = generator.build(tmp_path)
    peer.create_topic("steady", 2)
    trace = tmp_path / "trace"
    running = generator.start(
        program,
        "latency",
        bootstrap=peer.bootstrap,
        topic="steady",
        partitions=2,
        rate=200,
        seconds=60,
        trace=str(trace),
    )
    time.sleep(2.5)
    running.terminate()
    outcome = generator.outcome(running)
    lines = [tuple(map(float, line.split())) for line in trace.read_text().splitlines()]
    assert 0 < len(lines) < outcome.messages < 60 * 200
    assert len({due for due, _ in lines}) == len(lines)
    assert max(latency for _, latency in lines) == pytest.approx(outcome.latency["max_ms"], abs=0.01)


def test_who_answers_for_a_partition_leads_it(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.create_topic("led", 3)
    before = time.monotonic()
    with contextlib.closing(Leaders("led", 3, peer.addresses)) as leaders:
        assert before < leaders.until_led() < time.monotonic()
    monkeypatch.setattr("bench.leaders.SECONDS_MAX", 0)
    with (
        contextlib.closing(Leaders("led", 5, peer.addresses)) as leaders,
        pytest.raises(click.ClickException, match="2 partitions have had no leader"),
    ):
        leaders.until_led()


def test_wake_ups_and_cpu_of_a_process_that_does_next_to_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", WAKING], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = psutil.Process(child.pid)
        assert wake_ups(process) >= 50
        assert 0 < running_seconds(process) < 10
        child.communicate("\n")
