"""Hosts that do not answer for one reason are named together, with what was left undone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PLUGIN = Path(__file__).resolve().parents[3] / "playbooks" / "callback_plugins" / "headrace_unanswered.py"
specification = importlib.util.spec_from_file_location("headrace_unanswered", PLUGIN)
assert specification is not None
assert specification.loader is not None
plugin: Any = importlib.util.module_from_spec(specification)
specification.loader.exec_module(plugin)


def told(monkeypatch: pytest.MonkeyPatch, reasons: dict[str, str]) -> list[str]:
    """What is said of hosts that do not answer, by host; HOST in a reason is the host's address."""
    callback = plugin.CallbackModule()
    said: list[str] = []
    monkeypatch.setattr(callback._display, "display", lambda text, **_: said.append(text.strip()))
    plays = [SimpleNamespace(get_name=lambda name=name: name, hosts="all") for name in ("Look", "Change")]
    callback.v2_playbook_on_start(SimpleNamespace(get_plays=lambda: plays))
    callback.v2_playbook_on_play_start(plays[0])
    for number, (name, reason) in enumerate(reasons.items(), 1):
        address = f"10.0.0.{number}"
        host = SimpleNamespace(
            get_name=lambda name=name: name, get_vars=lambda address=address: {"ansible_host": address}
        )
        sentence = f"Host {name} does not answer (ssh to {address}: {reason.replace('HOST', address)})."
        result = SimpleNamespace(
            host=host, task=SimpleNamespace(get_name=lambda: "ask"), result={"headrace_unanswered": sentence}
        )
        callback.v2_runner_on_failed(result)
        callback.v2_runner_on_failed(result)
    callback.v2_playbook_on_stats(None)
    return said


def test_hosts_of_one_reason_share_a_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    late = "connect to host HOST port 22: timed out"
    said = told(monkeypatch, {"b-1": late, "b-2": "no key", "b-3": late})
    assert said == [
        "2 hosts do not answer, all for one reason: b-1, b-3. Host b-1 does not answer (ssh to 10.0.0.1: connect to host "
        '10.0.0.1 port 22: timed out). They were asked for "ask"; the play "Look" is unfinished, and nothing was done of: '
        "Change. Start the hosts and run again, or leave them out with --limit 'all:!b-1:!b-3'.",
        'Host b-2 does not answer (ssh to 10.0.0.2: no key). It was asked for "ask"; the play "Look" is unfinished, and '
        "nothing was done of: Change. Start the host and run again, or leave it out with --limit 'all:!b-2'.",
    ]
