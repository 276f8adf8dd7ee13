"""The way back of an upgrade, as the play goes it: the roles are stubs that note their turns, and fail where a case says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.acceptance

CHECKOUT = Path(__file__).resolve().parents[2]
PLAYBOOKS = CHECKOUT / "playbooks"
HOSTS = ("a", "b", "c", "d")
DUE = "- ansible.builtin.set_fact: {turn_due: [broker], turn_kept: []}\n"
TURN = """\
- stub_turn: {step: STEP, fails: "{{ fails.STEP | default('') }}", silent: "{{ silent | default('') }}", log: "{{ log }}"}
- ansible.builtin.set_fact: {turn_back: [broker]}
"""
ORDER = """\
- ansible.builtin.add_host: {name: "{{ item }}", groups: in_turn}
  loop: "{{ groups['broker'] }}"
"""
NOTHING = "- ansible.builtin.assert: {that: true, quiet: true}\n"
ROLES = {
    "release": {"main": NOTHING, "name": NOTHING},
    "order": {"main": ORDER},
    "gate": {"begin": NOTHING, "after": NOTHING},
    "turn": {
        "look": DUE,
        "settle": TURN,
        **{step: TURN.replace("STEP", step) for step in ("forward", "back")},
    },
}
ROLES["turn"]["settle"] = TURN.replace("STEP", "settle")
STUB = '''\
"""Notes the turn; what a host that does not answer is to a module of the kit's."""

from ansible.plugins.action import ActionBase

from headrace_inventory.asking import unanswered


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        host, asked = task_vars["inventory_hostname"], self._task.args
        if asked["silent"] == host:
            return unanswered("timed out", task_vars)
        with open(asked["log"], "a") as log:
            log.write(f"{asked['step']} {host}\\n")
        return {"failed": asked["fails"] == host, "changed": True, "msg": f"{asked['step']} went wrong."}
'''


@dataclass(frozen=True)
class Ended:
    """How an upgrade ended: its exit code, its turns in their order, and all that it said."""

    code: int
    turns: list[str]
    output: str


Upgrade = Callable[..., Ended]


@pytest.fixture
def upgrade(tmp_path: Path) -> Upgrade:
    for role, files in ROLES.items():
        tasks = tmp_path / "roles" / role / "tasks"
        tasks.mkdir(parents=True)
        for name, text in files.items():
            (tasks / f"{name}.yml").write_text(text)
    (tmp_path / "action_plugins").mkdir()
    (tmp_path / "action_plugins" / "stub_turn.py").write_text(STUB)
    (tmp_path / "change_release.yml").write_text((PLAYBOOKS / "change_release.yml").read_text())
    members = {host: {"ansible_connection": "local", "headrace_datacenter": "dc"} for host in HOSTS}
    groups = {"broker": {"hosts": members}, "offline": {}, "release": {"children": {"broker": {}}}}
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"all": {"children": groups}}))
    configuration = (CHECKOUT / "ansible.cfg").read_text()
    configuration = configuration.replace("= playbooks/", f"= {PLAYBOOKS}/")
    configuration = configuration.replace(f"{PLAYBOOKS}/roles", str(tmp_path / "roles"))
    configuration = configuration.replace(f"{PLAYBOOKS}/action_plugins", str(tmp_path / "action_plugins"))
    (tmp_path / "ansible.cfg").write_text(configuration)
    log = tmp_path / "turns"

    def run(**variables: Any) -> Ended:
        given = {
            "fails": {},
            "log": str(log),
            "change_audit_s": 0,
            "change_is_back": False,
            "release_version": "0.2.0",
            "headrace_support_bundle": False,
            **variables,
        }
        program = Path(sys.executable).parent / "ansible-playbook"
        command = [str(program), "-i", str(inventory), "change_release.yml", "-e", json.dumps(given)]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "PYTHONPATH": str(PLAYBOOKS),
        }
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        turns = log.read_text().splitlines() if log.exists() else []
        return Ended(ended.returncode, turns, " ".join((ended.stdout + ended.stderr).split()))

    return run


def steps(step: str, hosts: str) -> list[str]:
    return [f"{step} {host}" for host in hosts]


def test_where_a_host_does_not_answer_what_was_upgraded_goes_back_in_reverse(upgrade: Upgrade) -> None:
    ended = upgrade(silent="c")
    assert ended.turns == [*steps("forward", "ab"), *steps("back", "ba")], ended.output[-4000:]
    assert ended.code == 1
    assert (
        "c did not pass with release 0.2.0. What was changed runs again what it ran before: b, a. "
        "c does not answer, and is as it was left. What was seen: Host c does not answer (local to c: timed out)."
    ) in ended.output


@pytest.mark.long
def test_a_host_that_fails_goes_back_first_and_all_that_were_upgraded_after_it(upgrade: Upgrade) -> None:
    ended = upgrade(fails={"forward": "c"})
    assert ended.turns == [*steps("forward", "abc"), *steps("back", "cba")], ended.output[-4000:]
    assert ended.code == 1
    assert "runs again what it ran before: c, b, a. What was seen: forward went wrong." in ended.output


@pytest.mark.long
def test_a_host_that_cannot_be_taken_back_ends_the_way_back(upgrade: Upgrade) -> None:
    ended = upgrade(fails={"forward": "c", "back": "b"})
    assert ended.turns == [*steps("forward", "abc"), *steps("back", "cb")], ended.output[-4000:]
    assert ended.code == 1
    assert (
        "b could not be taken back, and the hosts after it are left as they are: back went wrong. "
        "It goes back since c had failed: forward went wrong."
    ) in ended.output


@pytest.mark.long
def test_an_upgrade_that_passes_settles_on_all_hosts(upgrade: Upgrade) -> None:
    ended = upgrade()
    assert ended.code == 0, ended.output[-4000:]
    assert ended.turns[:4] == steps("forward", "abcd")
    assert sorted(ended.turns[4:]) == steps("settle", "abcd")
