"""How a support bundle is made of a run that failed, and of which runs it is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PLUGIN = Path(__file__).resolve().parents[3] / "playbooks" / "callback_plugins" / "headrace_failed_run.py"
specification = importlib.util.spec_from_file_location("headrace_failed_run", PLUGIN)
assert specification is not None
assert specification.loader is not None
failed_run: Any = importlib.util.module_from_spec(specification)
specification.loader.exec_module(failed_run)


def result(
    host: str = "e-1",
    file: str = "roles/service/tasks/main.yml",
    action: str = "headrace_service",
    **said: Any,
) -> Any:
    task = SimpleNamespace(action=action, delegate_to=None, get_path=lambda: f"/x/{file}:4")
    return SimpleNamespace(host=SimpleNamespace(get_name=lambda: host), task=task, result=said)


class Manager:
    def __init__(self, variables: dict[str, Any]) -> None:
        self.variables = variables

    def get_vars(self, **_: Any) -> dict[str, Any]:
        return self.variables


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that make bundles; none is run."""
    found: list[list[str]] = []
    monkeypatch.setattr(failed_run.CallbackModule, "_make", lambda _, words: found.append(words))
    monkeypatch.setattr(
        failed_run.CallbackModule, "_advise", lambda _, words: found.append(["advice", *words])
    )
    return found


def run(
    monkeypatch: pytest.MonkeyPatch,
    *results: Any,
    playbook: str = "site.yml",
    options: Any = None,
    **variables: Any,
) -> None:
    """A run with an answer of e-1 and these failures."""
    monkeypatch.setattr(failed_run.context, "CLIARGS", {"inventory": ["inv"], **(options or {})})
    callback = failed_run.CallbackModule()
    callback.v2_playbook_on_start(SimpleNamespace(_file_name=f"/x/{playbook}"))
    callback.v2_playbook_on_play_start(SimpleNamespace(get_variable_manager=lambda: Manager(variables)))
    callback.v2_runner_on_ok(result("e-1"))
    callback.v2_runner_on_ok(result("e-3", action="ansible.builtin.assert"))
    for each in results:
        callback.v2_runner_on_failed(each)
    callback.v2_playbook_on_stats(SimpleNamespace(failures=dict.fromkeys(results and ["e-2"]), dark={}))


def test_hosts_that_answered_are_asked(monkeypatch: pytest.MonkeyPatch, made: list[list[str]]) -> None:
    run(
        monkeypatch,
        result("e-2", msg="no"),
        options={"extra_vars": ("a=1",), "vault_password_files": ["pw"], "become": True},
    )
    (words,) = made
    assert words[1:] == [
        "--inventory=inv",
        str(failed_run.BUNDLE),
        "--limit=e-1,e-2",
        "--extra-vars",
        "a=1",
        "--vault-password-file=pw",
        "--become",
    ]


def test_a_host_that_did_not_answer_is_left_out(
    monkeypatch: pytest.MonkeyPatch, made: list[list[str]]
) -> None:
    run(monkeypatch, result("e-2", headrace_unanswered="Host e-2 does not answer."))
    assert "--limit=e-1" in made[0]


@pytest.mark.parametrize(
    "how",
    [
        {"playbook": "health.yml"},
        {"options": {"check": True}},
        {"headrace_support_bundle": False},
        {"headrace_support_bundle": "no"},
    ],
)
def test_views_checks_and_who_wants_none_get_none(
    monkeypatch: pytest.MonkeyPatch, made: list[list[str]], how: dict[str, Any]
) -> None:
    run(monkeypatch, result(), **how)
    assert made == []


def test_what_preflight_refused_and_what_went_well_get_none(
    monkeypatch: pytest.MonkeyPatch, made: list[list[str]]
) -> None:
    run(monkeypatch, result(file="preflight.yml"))
    run(monkeypatch, result(file="upgrade.yml", action="ansible.builtin.assert"))
    run(monkeypatch)
    assert made == []


def test_whoever_gave_a_password_by_hand_is_told_the_command(
    monkeypatch: pytest.MonkeyPatch, made: list[list[str]]
) -> None:
    run(monkeypatch, result(), options={"ask_vault_pass": True})
    assert made[0][0] == "advice"


def test_a_bundle_that_takes_too_long_is_ended_and_its_command_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_run, "BUNDLE_S_MAX", 0.2)
    advised: list[list[str]] = []
    monkeypatch.setattr(failed_run.CallbackModule, "_advise", lambda _, words: advised.append(words))
    words = ["sh", "-c", "echo Missing: x; exec sleep 60"]
    failed_run.CallbackModule()._make(words)
    assert advised == [words]
