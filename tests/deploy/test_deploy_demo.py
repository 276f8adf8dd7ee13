"""What `make demo` refuses, and how it reads Ansible's output and inventory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from io import StringIO
from pathlib import Path

import click
import pytest
from rich.console import Console

from demo import command as demo
from demo import verdict
from demo.rollout import CHECKOUT, Datacenter, Rollout, Topology, failure_sentences

LATENCY = {"mean": 1.0, "p50": 1.0, "p99": 1234.56, "max": 1234.56}
COUNTS = {
    "produced": 1_234_567,
    "live": 1_234_567,
    "offline": 1_234_567,
    "warehouse": 1_234_567,
    "lost": 0,
    "duplicated": 0,
}
REPORT = {
    "verdict": "incomplete",
    "complete_until": None,
    "totals": {**COUNTS, "rejected": 3},
    "topics": [
        {"datacenter": "dc-east", "topic": "pageviews", **COUNTS},
        {"datacenter": "dc-west", "topic": "pageviews", **COUNTS},
    ],
    "negative_latencies": [
        {
            "datacenter": "dc-west",
            "hop": "live_to_offline",
            "from_host": "web-1",
            "to_host": "127.0.3.2",
            "count": count,
            "skew_seconds": 3.0,
            "is_certain": is_certain,
        }
        for count, is_certain in ((1204, True), (3, False))
    ],
    "hops": [
        {
            "datacenter": "dc-west",
            "topic": "pageviews",
            "hop": "producer_to_live",
            "state": "unknown",
            "unknown": 7,
        },
        {"datacenter": "dc-east", "topic": "pageviews", "hop": "producer_to_live", "state": "judged"},
    ],
    "latency_seconds": {"producer_to_live": LATENCY, "end_to_end": None},
    "findings": [
        {
            "kind": "loss",
            "hop": "live_to_offline",
            "datacenter": "dc-east",
            "topic": "pageviews",
            "server": "web-1",
            "service": "shop",
            "producer": "p-1",
            "first_sequence": 4,
            "last_sequence": 7,
            "count": 4,
            "window_start": None,
        },
        *(
            {
                "kind": "late",
                "hop": "offline_to_warehouse",
                "datacenter": "dc-east",
                "topic": "pageviews",
                "producer": "p-1",
                "first_sequence": first,
                "last_sequence": first + 999,
                "count": 1000,
                "window_start": None,
            }
            for first in (0, 2000)
        ),
        {
            "kind": "recreation",
            "hop": "live_to_offline",
            "datacenter": "dc-east",
            "topic": "pageviews",
            "producer": "",
            "first_sequence": -1,
            "last_sequence": -1,
            "count": 0,
            "window_start": None,
            "reason": "the topic has another id",
        },
    ],
    "incomplete": [
        {
            "datacenter": "dc-east",
            "topic": "pageviews",
            "server": "web-1",
            "service": "shop",
            "producer": "p-1",
            "reason": "it has not closed",
        },
        {"datacenter": "", "topic": "", "producer": "", "reason": "no monitoring events were seen"},
        {"datacenter": "dc-east", "topic": "pageviews", "producer": "", "reason": "partition 0 is rotten"},
    ],
}
LINE = b'10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "agent"\n'


def run_demo(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demo"]
    return subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("events", ["0", "-1", "many", "1.5", "٣", "9" * 5000])
def test_a_number_of_events_that_is_none_is_refused(events: str) -> None:
    for name in ("DEMO_EVENTS", "DEMO_RATE"):
        with pytest.raises(demo.SettingError, match=f"{name} is .*: it must be a whole number above 0"):
            demo.read_settings({name: events})


def test_the_demo_needs_no_settings() -> None:
    settings = demo.read_settings({"DEMO_EVENTS": "", "ACCESS_LOG": "", "DEMO_KEEP": ""})
    assert settings == demo.Settings(access_log=demo.SAMPLE, events=10_000, rate=2_000, keep=False)
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
    assert "none.log cannot be read: No such file or directory; set ACCESS_LOG" in result.stderr


def test_a_pipeline_that_runs_is_left_alone(tmp_path: Path) -> None:
    rollout = Rollout(root=CHECKOUT / "var" / "no-such-rollout")
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
        offline=at("offline", 3, "127.0.3.1:9092,127.0.3.2:9092,127.0.3.3:9092"),
    )


def test_a_failed_host_is_told_in_its_own_words() -> None:
    message = json.dumps(
        {"changed": False, "msg": "Task failed: Module failed: a does not serve after 60 s."}
    )
    assert failure_sentences(f"fatal: [a]: FAILED! => {message}\n") == ["a: a does not serve after 60 s."]
    assert failure_sentences("fatal: [a]: UNREACHABLE! => {broken}\n") == ["a: {broken}"]
    assert failure_sentences("ok: [a]\n") == []


def test_the_last_screen_fits_80_columns_and_says_every_reason_as_a_sentence() -> None:
    text = StringIO()
    verdict.print_verdict(Console(file=text, width=80), REPORT)
    lines = text.getvalue().splitlines()
    header = next(line for line in lines if "topic" in line)
    assert header.split() == ["topic", "produced", "live", "offline", "warehouse", "lost", "duplicated"]
    assert "…" not in text.getvalue()
    losses = {line.split()[0]: line.split()[-2] for line in lines if line.startswith("dc-")}
    assert losses == {"dc-east.pageviews": "0", "dc-west.pageviews": "?"}
    assert "Lines that do not parse, kept in the dead-letter topics (not loaded): 3" in lines
    assert [line.strip() for line in lines if line.startswith("  ") and line.strip()] == [
        "loss: server web-1, service shop (producer p-1): 4 events of pageviews in dc-east from live to offline, "
        "sequences 4 to 7.",
        "recreation: pageviews in dc-east, live to offline: the topic has another id.",
        "unknown: what was lost of pageviews in dc-west from producer to live; 7 events cannot be judged there.",
        "incomplete: server web-1, service shop (producer p-1) of pageviews in dc-east: it has not closed.",
        "incomplete: no monitoring events were seen.",
        "incomplete: pageviews in dc-east: partition 0 is rotten.",
        "late: 2,000 events of pageviews in dc-east, from offline to warehouse.",
        "clocks: 1,204 latencies of dc-west from live to offline are negative and in no figure: the clock of web-1 is "
        "ahead of the clock of 127.0.3.2, by up to 3 s.",
    ]
    assert lines[-1] == "Verdict: incomplete  (complete until -)"


@pytest.mark.parametrize(
    ("verdict_", "well", "acknowledged", "sentences"),
    [
        ("complete", True, 5, []),
        ("loss", False, 6, []),
        ("complete", False, 5, ["A replay failed: what it did not publish is not in the report."]),
        ("complete", True, 6, ["The replays had 6 events acknowledged, and the audit knows of 5."]),
    ],
)
def test_a_demo_that_fails_with_a_complete_report_says_why(
    verdict_: str, well: bool, acknowledged: int, sentences: list[str]
) -> None:
    report = {"verdict": verdict_, "totals": {"produced": 5}}
    published = demo.Published(well=well, acknowledged=acknowledged)
    assert demo.objections(report, published) == sentences
    assert demo.is_complete(report, published) == (verdict_ == "complete" and not sentences)


def test_a_wrong_setting_gets_one_sentence_and_exit_code_2() -> None:
    result = run_demo(DEMO_EVENTS="0")
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "Error: DEMO_EVENTS is '0': it must be a whole number above 0, of at most 9 digits."
    ]


def test_a_play_that_fails_is_not_called_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    playbook = tmp_path / "ansible-playbook"
    playbook.write_text(
        "#!/bin/sh\n"
        "echo 'PLAY [Check] ***'\n"
        "echo 'PLAY [Change] ***'\n"
        "echo 'skipping: no hosts matched'\n"
        "echo 'PLAY [Start] ***'\n"
        'echo \'fatal: [a]: FAILED! => {"msg": "a does not serve"}\'\n'
        "echo 'PLAY RECAP ***'\n"
        "exit 2\n"
    )
    playbook.chmod(0o755)
    monkeypatch.setattr("demo.rollout.program", lambda _: str(playbook))
    said: list[str] = []
    rollout = Rollout(ansible_log=tmp_path / "ansible.log")
    with pytest.raises(click.ClickException, match=r"site.yml failed: a: a does not serve\n"):
        rollout.play("site.yml", lambda play, _: said.append(play))
    assert said == ["Check"]
