"""Hosts that do not answer for one reason are named together, with what was left undone."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.utils.context_objects import CLIArgs

PLUGIN = Path(__file__).resolve().parents[3] / "playbooks" / "callback_plugins" / "headrace_unanswered.py"
specification = importlib.util.spec_from_file_location("headrace_unanswered", PLUGIN)
assert specification is not None
assert specification.loader is not None
plugin: Any = importlib.util.module_from_spec(specification)
specification.loader.exec_module(plugin)


def told(
    monkeypatch: pytest.MonkeyPatch,
    reasons: dict[str, str],
    limit: str | None = None,
    limited: Iterable[str] = ("b-1", "b-2", "b-3", "b-4"),
    loops: bool = False,
) -> list[str]:
    """What is said of hosts that do not answer, by host, in a run that `limit` gives these hosts; HOST is a host's address."""
    monkeypatch.setattr(plugin.context, "CLIARGS", CLIArgs({"subset": limit}))
    inventory = SimpleNamespace(get_hosts=lambda **_: [SimpleNamespace(name=name) for name in limited])
    manager = SimpleNamespace(_inventory=inventory)
    callback = plugin.CallbackModule()
    said: list[str] = []
    monkeypatch.setattr(callback._display, "display", lambda text, **_: said.append(text.strip()))
    plays = [
        SimpleNamespace(get_name=lambda name=name: name, hosts="all", get_variable_manager=lambda: manager)
        for name in ("Look", "Change")
    ]
    callback.v2_playbook_on_start(SimpleNamespace(get_plays=lambda: plays))
    callback.v2_playbook_on_play_start(plays[0])
    for number, (name, reason) in enumerate(reasons.items(), 1):
        address = f"10.0.0.{number}"
        host = SimpleNamespace(
            get_name=lambda name=name: name, get_vars=lambda address=address: {"ansible_host": address}
        )
        sentence = f"Host {name} does not answer (ssh to {address}: {reason.replace('HOST', address)})."
        found: dict[str, Any] = {"headrace_unanswered": sentence}
        result = SimpleNamespace(
            host=host,
            task=SimpleNamespace(get_name=lambda: "ask"),
            result={"results": [{"failed": False}, found]} if loops else found,
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


@pytest.mark.parametrize(
    ("limit", "limited", "advice"),
    [
        (
            "dc_east",
            ("b-1", "b-2"),
            "Start the host and run again, or leave it out with --limit 'dc_east:!b-1'.",
        ),
        (
            "b-1,b-2",
            ("b-1", "b-2"),
            "Start the host and run again, or leave it out with --limit 'b-1,b-2,!b-1'.",
        ),
        ("b-1", ("b-1",), "Start the host and run again."),
        ("b-2", ("b-2",), "Start the host and run again."),
    ],
)
def test_who_is_left_out_widens_no_limit(
    monkeypatch: pytest.MonkeyPatch, limit: str, limited: tuple[str, ...], advice: str
) -> None:
    (said,) = told(monkeypatch, {"b-1": "timed out"}, limit, limited)
    assert said.endswith(f"nothing was done of: Change. {advice}")


def test_a_host_is_named_that_fell_silent_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    (said,) = told(monkeypatch, {"b-1": "timed out"}, loops=True)
    assert said.startswith("Host b-1 does not answer (ssh to 10.0.0.1: timed out). It was asked for")
