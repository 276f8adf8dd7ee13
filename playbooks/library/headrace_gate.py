#!/usr/bin/python
"""Waits until a step of a roll-out may be taken, or has gone well: until every command of a gate ends with 0.

The commands are those that people use (headrace cluster may-stop, cluster status, mirror status, audit status), so a gate
never says anything else than they do; ZooKeeper, which has none, is asked `mntr`. Invariants: changes nothing; the last pass of a
gate that opens asked every command; a broker that opens its logs is waited for as long as it makes progress, however long that
takes; a service that does not serve has nothing to lose, and is not held up.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ansible.module_utils import headrace_ensemble as ensemble
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_health import complaint, wait_until

DOCUMENTATION = r"""
module: headrace_gate
short_description: Wait until every command of a gate ends with 0
description:
  - Asks the commands again and again until all of them end with 0 in one pass, and fails with what the first one that
    does not says when time has run out.
  - Changes nothing; in check mode it asks once and never fails.
options:
  what: {description: "What waits, as half a sentence: the restart of dc-east-broker-1.", type: str, required: true}
  commands: {description: "Each a list: the program and its arguments.", type: list, elements: list, default: []}
  unless_silent:
    description: The broker that is to stop, and how it is asked; while it does not answer, the gate is open.
    type: dict
    suboptions:
      kind: {description: The protocol to ask in., type: str, required: true, choices: [kafka, kafka_tls]}
      address: {description: Where to ask., type: str, required: true}
      port: {description: The port to ask., type: int, required: true}
  ready: {description: "A broker's /ready, which must answer 200 before any command is asked.", type: str}
  ensemble:
    description: The members of a ZooKeeper ensemble, as host:port; one must lead, and all others follow in step.
    type: list
    elements: str
    default: []
  ensemble_tls: {description: Whether these ports speak TLS., type: bool, default: false}
  stopping:
    description: Of these members the one that is to stop; then a quorum without it is enough.
    type: str
  timeout_s: {description: How long the gate may take without progress of the broker's start., type: int, default: 600}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: See whether the broker may stop
  headrace_gate:
    what: the restart of dc-east-broker-1
    commands:
      - [/opt/headrace/current/bin/headrace, cluster, may-stop, "1", --bootstrap, "127.0.1.1:9092"]
"""

RETURN = r"""
open:
  description: Whether it opened; in check mode it may not have.
  type: bool
  returned: success
seconds:
  description: How long the gate took to open.
  type: float
  returned: success
answers:
  description: What each command printed when the gate opened.
  type: list
  returned: success
leader:
  description: The address of the ZooKeeper that leads, if one was asked and does.
  type: str
  returned: success
"""

POLL_S, POLL_S_MAX = 0.5, 5.0
# Each time that the commands are asked costs the host a second of CPU: who has waited for long waits this share of it longer.
POLL_SHARE = 0.1
COMMAND_S_MAX = 60
ANSWER_LINES_MAX = 20
READY_S_MAX = 5.0
# A broker that has not answered for this long serves nobody.
SILENCE_S_MAX = 10.0


class Answer(NamedTuple):
    """What one question of a gate came to; `progress` tells a start that goes on from one that stands still."""

    is_open: bool
    text: str
    progress: object = None


Question = Callable[[], Answer]


def command_question(command: Sequence[str]) -> Question:
    def ask() -> Answer:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False, errors="replace"
            )
        except subprocess.TimeoutExpired:
            return Answer(False, f"{' '.join(command)} does not end within {COMMAND_S_MAX} s")
        except OSError as error:
            return Answer(False, f"{command[0]} cannot be run: {error.strerror}")
        if done.returncode == 0:
            return Answer(True, done.stdout.strip())
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-ANSWER_LINES_MAX:])
        return Answer(False, f"{' '.join(command)} ends with {done.returncode}:\n{said}")

    return ask


def ready_question(url: str) -> Question:
    """Asks a broker whether it is ready; what it says of its logs is its progress."""

    def ask() -> Answer:
        try:
            with urllib.request.urlopen(url, timeout=READY_S_MAX):
                return Answer(True, "")
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace").strip()
            return Answer(False, f"the broker is not ready: {text}", _progress(text))
        except OSError as error:
            return Answer(False, f"the broker does not answer at {url}: {getattr(error, 'reason', error)}")

    return ask


def ensemble_question(addresses: Sequence[str], stopping: str | None, tls: bool) -> Question:
    """Asks all members; what it answers is who leads."""

    def ask() -> Answer:
        members = {address: ensemble.ask(address, tls) for address in addresses}
        wrong = ensemble.stop_hindrance(members, stopping) if stopping else ensemble.hindrance(members)
        return Answer(wrong is None, wrong or ensemble.leader(members))

    return ask


def is_silent(asked: dict[str, Any], seconds: float = SILENCE_S_MAX) -> bool:
    return (
        wait_until(lambda: complaint(asked["kind"], asked["address"], asked["port"], ""), seconds) is not None
    )


def _progress(text: str) -> object:
    try:
        told = json.loads(text)
        return told["state"], told["logs_opened"], told["bytes_checked"]
    except (ValueError, TypeError, KeyError):
        return None


def wait(
    questions: Sequence[Question],
    timeout_s: float,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str | None, list[str]]:
    """(None, the answers) once all questions are open in one pass; what hinders, when there is no progress for so long."""
    deadline, progress = now() + timeout_s, None
    while True:
        answers: list[str] = []
        for ask in questions:
            answer = ask()
            if not answer.is_open:
                break
            answers.append(answer.text)
        else:
            return None, answers
        if answer.progress is not None and answer.progress != progress:
            deadline, progress = now() + timeout_s, answer.progress
        if (left_s := deadline - now()) <= 0:
            return answer.text, answers
        sleep(min(left_s, max(POLL_S, min(POLL_S_MAX, POLL_SHARE * (timeout_s - left_s)))))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "what": {"type": "str", "required": True},
            "commands": {"type": "list", "elements": "list", "default": []},
            "unless_silent": {
                "type": "dict",
                "options": {
                    "kind": {"type": "str", "required": True, "choices": ["kafka", "kafka_tls"]},
                    "address": {"type": "str", "required": True},
                    "port": {"type": "int", "required": True},
                },
            },
            "ready": {"type": "str"},
            "ensemble": {"type": "list", "elements": "str", "default": []},
            "ensemble_tls": {"type": "bool", "default": False},
            "stopping": {"type": "str"},
            "timeout_s": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    questions = [ready_question(wanted["ready"])] if wanted["ready"] else []
    if wanted["ensemble"]:
        questions.append(ensemble_question(wanted["ensemble"], wanted["stopping"], wanted["ensemble_tls"]))
    questions += [command_question([str(word) for word in command]) for command in wanted["commands"]]
    began = time.monotonic()
    if wanted["unless_silent"] and is_silent(wanted["unless_silent"]):
        module.exit_json(changed=False, open=True, seconds=0.0, answers=["It does not serve."])
    hindrance, answers = wait(questions, 0 if module.check_mode else wanted["timeout_s"])
    seconds = round(time.monotonic() - began, 1)
    if hindrance is None:
        leader = answers[0] if wanted["ensemble"] and not wanted["ready"] else ""
        module.exit_json(changed=False, open=True, seconds=seconds, answers=answers, leader=leader)
    text = f"{wanted['what']} has to wait: {hindrance}"
    if module.check_mode:
        module.warn(text)
        module.exit_json(changed=False, open=False, seconds=seconds, answers=answers)
    module.fail_json(msg=f"after {seconds:.0f} s {text}", seconds=seconds)


if __name__ == "__main__":
    main()
