"""A demo whose part is killed for good names it; one whose parts come back ends complete, in short in test_deploy_rollout.py."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo_process import PROGRAMS, DemoProcess, copy_of_local, eventually, processes
from odd_demo import EVENTS, TIERS, environment_of

from headrace.producer.spool import VARIABLE as SPOOL_VARIABLE

pytestmark = pytest.mark.timeout(420)


@pytest.mark.long
def test_a_killed_replay_leaves_the_demo_incomplete_and_is_named(alone: None, tmp_path: Path) -> None:
    inventory = copy_of_local(tmp_path, network=79)
    with DemoProcess(tmp_path, inventory=inventory, environment=environment_of(tmp_path)) as demo:
        demo.wait_until_published(0.5)
        started = processes(demo.root)
        os.kill(demo.replay_pid("dc-west"), signal.SIGKILL)
        code = demo.wait()
        report = demo.report()

    assert code == 1, demo.text()
    assert report["verdict"] == "incomplete"
    assert report["findings"] == [] or {item["kind"] for item in report["findings"]} == {"late"}
    named = {(item["datacenter"], item["producer"]) for item in report["incomplete"] if item["producer"]}
    assert {datacenter for datacenter, _ in named} == {"dc-west"}
    assert len(named) == 1
    ((_, producer),) = named
    assert f"producer {producer}" in demo.text()
    assert "Verdict: incomplete" in demo.text()
    assert "dc-west  killed by SIGKILL" in demo.text()
    rows = {row["datacenter"]: row for row in report["topics"]}
    assert {tier: rows["dc-east"][tier] for tier in TIERS} == dict.fromkeys(TIERS, EVENTS)
    assert 0 < rows["dc-west"]["warehouse"] < EVENTS
    assert not (demo.root / "supervisor.sock").exists()
    assert not [name for name, pid in started.items() if Path(f"/proc/{pid}").exists()]


@pytest.mark.long
def test_a_demo_ends_complete_though_a_producer_a_counter_and_a_mirror_are_killed_with_the_page_open(
    alone: None, tmp_path: Path
) -> None:
    inventory = copy_of_local(tmp_path, network=79)
    with (
        DemoProcess(tmp_path, inventory=inventory, environment=environment_of(tmp_path)) as demo,
        contextlib.ExitStack() as stack,
    ):
        demo.wait_until_published(0.2)
        told = stack.enter_context(open_page(demo))
        front_end = FrontEnd(tmp_path)
        killed = {service: demo.kill(service) for service in ("dc-east-counter", "offline-broker-1")}
        assert eventually(lambda: front_end.published > 100), front_end.text()
        front_end.kill()
        told_before = len(told)
        for service, pid in killed.items():
            assert demo.is_back(service, pid), service
        front_end.come_back()
        assert demo.wait() == 0, demo.text()
        report = demo.report()
        assert len(told) > told_before, "the page went on"

    assert "Verdict: complete" in demo.text()
    totals = report["totals"]
    assert (report["verdict"], report["findings"], report["incomplete"]) == ("complete", [], [])
    assert totals["live"] == totals["offline"] == totals["warehouse"] >= totals["produced"]
    assert totals["produced"] > 2 * EVENTS, "the front end's accounts are there"
    assert b"event: " in b"".join(told)


class FrontEnd:
    """A replay of a person's own to dc-east, whose accounts outlive it in a spool."""

    def __init__(self, home: Path) -> None:
        self._log = home / "front-end.log"
        self._command = [
            str(PROGRAMS / "headrace"),
            "replay",
            "--progress",
            "--log",
            str(home / "access.log"),
        ]
        self._command += ["--rate", "100", "--datacenter", "dc-east"]
        self._command += ["--bootstrap", "127.79.1.100:9092", "--registry", "http://127.79.1.12:8081"]
        self._environment = {**os.environ, SPOOL_VARIABLE: str(home / "spool")}
        self._process = self._start(100_000)

    def _start(self, events: int) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*self._command, "--events", str(events)],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=self._environment,
            )

    @property
    def published(self) -> int:
        """As it last said."""
        lines = [line.split() for line in self.text().splitlines() if line.endswith("events published")]
        return int(lines[-1][0]) if lines else 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def come_back(self) -> None:
        """Its next start tells what the killed one has left."""
        assert self._start(20).wait(60) == 0, self.text()
        assert "its last accounts are published now" in self.text()

    def text(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def open_page(demo: DemoProcess) -> Iterator[list[bytes]]:
    """The lines that a browser with the audit's page open hears, as they come."""
    command = [str(PROGRAMS / "headrace"), "audit", "serve", "--bootstrap", "127.79.3.1:9092,127.79.3.2:9092"]
    command += [
        "--warehouse",
        str(demo.root / "data" / "warehouse"),
        "--interval",
        "1",
        "--listen",
        "127.79.3.13:8090",
    ]
    told: list[bytes] = []

    def listen(url: str) -> None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}events", timeout=300) as events:
            told.extend(events)

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            word, url = server.stdout.readline().split()
            assert word == "serving"
            threading.Thread(target=listen, args=(url,), daemon=True).start()
            yield told
        finally:
            server.terminate()
