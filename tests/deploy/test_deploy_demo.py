"""What `make demo` refuses, and how it reads Ansible's output and inventory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from headrace.cli import demo
from headrace.cli.rollout import Datacenter, Rollout, Topology, failure_sentences

LINE = b'10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "agent"\n'


def run_demo(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.cli.demo"]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("events", ["0", "-1", "many", "1.5", "٣"])
def test_a_number_of_events_that_is_none_is_refused(events: str) -> None:
    with pytest.raises(click.UsageError, match="DEMO_EVENTS is"):
        demo.read_settings({"DEMO_EVENTS": events})


def test_the_demo_needs_no_settings() -> None:
    settings = demo.read_settings({"DEMO_EVENTS": "", "ACCESS_LOG": "", "DEMO_KEEP": ""})
    assert settings == demo.Settings(access_log=demo.SAMPLE, events=10_000, keep=False)
    assert settings.access_log.is_file()
    assert demo.read_settings({"DEMO_KEEP": "1"}).keep


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "it is empty"), (b"\xff\xfe\n" * 3, "none of its 3 lines is in combined log format")],
)
def test_a_log_without_a_line_that_parses_ends_before_the_rollout(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    log = tmp_path / "access.log"
    log.write_bytes(content)
    with pytest.raises(click.ClickException, match=sentence):
        demo.check_log(log)


def test_one_line_that_parses_is_enough(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_bytes(b"broken\n" + b"x" * 1_000_000 + b"\n" + LINE)
    demo.check_log(log)


def test_a_log_that_is_not_there_gets_one_sentence_and_failure(tmp_path: Path) -> None:
    result = run_demo(ACCESS_LOG=str(tmp_path / "none.log"))
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "none.log cannot be read: No such file or directory." in result.stderr


def test_a_pipeline_that_runs_is_left_alone(tmp_path: Path) -> None:
    rollout = Rollout(root=demo.CHECKOUT / "var" / "no-such-rollout")
    assert not rollout.runs()
    demo.refuse_while_running(rollout)

    path = tmp_path / "supervisor.sock"
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind(str(path))
        supervisor.listen()
        with pytest.raises(click.ClickException, match=r"runs already .* stop it with"):
            demo.refuse_while_running(Rollout(root=tmp_path))


def test_the_demo_finds_its_addresses_in_the_inventory() -> None:
    def at(name: str, network: int, bootstrap: str) -> Datacenter:
        return Datacenter(name=name, bootstrap=bootstrap, registry_url=f"http://127.0.{network}.12:8081")

    assert Rollout().topology() == Topology(
        live=(at("dc-east", 1, "127.0.1.100:9092"), at("dc-west", 2, "127.0.2.100:9092")),
        offline=at("offline", 3, "127.0.3.1:9092,127.0.3.2:9092"),
    )


def test_a_failed_host_is_told_in_its_own_words() -> None:
    message = json.dumps(
        {"changed": False, "msg": "Task failed: Module failed: a does not serve after 60 s."}
    )
    assert failure_sentences(f"fatal: [a]: FAILED! => {message}\n") == ["a: a does not serve after 60 s."]
    assert failure_sentences("fatal: [a]: UNREACHABLE! => {broken}\n") == ["a: {broken}"]
    assert failure_sentences("ok: [a]\n") == []
