"""Has a support bundle made when a run fails on hosts, of those that answered, within half a minute.

Invariants: a run that was refused before anything was changed, one in check mode and a view make none; the run's end is held up
for no longer than BUNDLE_S_MAX; the exit code of the run stays what it was. With headrace_support_bundle: false there is none.
"""

from __future__ import annotations

import importlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: headrace_failed_run
type: notification
short_description: Makes a support bundle when a run fails
description:
  - Runs support_bundle.yml on the hosts that answered, at most for half a minute, and prints where the bundle is.
author: The headrace contributors
"""

# Its CLIARGS, the options of the run, are set after this file is loaded.
context: Any = importlib.import_module("ansible.context")
BUNDLE = Path(__file__).resolve().parents[1] / "support_bundle.yml"
BUNDLE_S_MAX, ENDING_S_MAX = 30, 5
# Of its time, what a host may take.
COLLECT_S_MAX, QUESTION_S_MAX = 15, 5
SINCE = "-30min"
# A failure in one of these, or of an assertion, is a refusal, which changed nothing and says itself what is wrong.
REFUSING = frozenset({"preflight.yml", "inventory.yml"})
VIEWS = frozenset({"preflight.yml", "health.yml", "support_bundle.yml"})
ECHOED = ("Missing: ", "Support bundle: ")


def command(options: Mapping[str, Any], hosts: list[str]) -> list[str]:
    """How the bundle is made of these hosts, with the run's own inventory, connection and secrets."""
    words = [str(Path(sys.argv[0])), *(f"--inventory={each}" for each in options.get("inventory") or ())]
    words += [str(BUNDLE), f"--limit={','.join(hosts)}"]
    for each in options.get("extra_vars") or ():
        words += ["--extra-vars", each]
    words += [f"--vault-id={each}" for each in options.get("vault_ids") or ()]
    words += [f"--vault-password-file={each}" for each in options.get("vault_password_files") or ()]
    for name in ("private_key_file", "remote_user", "connection", "become_user", "become_method"):
        if options.get(name):
            words.append(
                f"--{name.replace('remote_', '').replace('_file', '').replace('_', '-')}={options[name]}"
            )
    return words + (["--become"] if options.get("become") else [])


def asks(options: Mapping[str, Any]) -> bool:
    """Whether the run asked a person for a password, which nobody is there to give again."""
    return any(options.get(name) for name in ("ask_vault_pass", "ask_pass", "become_ask_pass"))


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Hears what Ansible does; acts last."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "headrace_failed_run"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._playbook = ""
        self._play: Any = None
        self._answered: dict[str, None] = {}
        self._failed: Any = None

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._playbook = os.path.basename(playbook._file_name)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._play = play

    def v2_runner_on_ok(self, result: Any) -> None:
        self._note_answer(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not result.result.get("headrace_unanswered"):
            self._note_answer(result)
        file = os.path.basename(result.task.get_path().rpartition(":")[0])
        refuses = file in REFUSING or result.task.action.rpartition(".")[2] == "assert"
        if not ignore_errors and not refuses:
            self._failed = result.host

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._failed = result.host

    def _note_answer(self, result: Any) -> None:
        """Only modules of the kit's are sure to have run on the host."""
        if result.task.action.startswith("headrace_") and not result.task.delegate_to:
            self._answered[result.host.get_name()] = None

    def v2_playbook_on_stats(self, stats: Any) -> None:
        options = context.CLIARGS
        failed = bool(stats.failures or stats.dark) and self._failed is not None
        if not failed or options.get("check") or self._playbook in VIEWS or not self._is_wanted():
            return
        words = command(options, list(self._answered))
        if not self._answered or asks(options):
            self._advise(words)
            return
        self._display.display(f"\nA support bundle is being made, for at most {BUNDLE_S_MAX} s.")
        self._make(words)

    def _is_wanted(self) -> bool:
        variables = self._play.get_variable_manager().get_vars(play=self._play, host=self._failed)
        return bool(boolean(variables.get("headrace_support_bundle", True), strict=False))

    def _make(self, words: list[str]) -> None:
        bounds = (
            f"support_since={SINCE}",
            f"support_seconds_max={COLLECT_S_MAX}",
            f"look_timeout_s={QUESTION_S_MAX}",
        )
        quick = [word for bound in bounds for word in ("--extra-vars", bound)]
        process = subprocess.Popen(
            [*words, *quick],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_NOCOLOR": "1"},
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=BUNDLE_S_MAX)
        except subprocess.TimeoutExpired:
            end(process)
            said = ""
        told = [line for line in said.splitlines() if line.startswith(ECHOED)]
        for line in told:
            self._display.display(line)
        if not told:
            self._advise(words)

    def _advise(self, words: list[str]) -> None:
        self._display.display(f"\nNo support bundle was made. Make one with: {shlex.join(words)}")


def end(process: subprocess.Popen[str]) -> None:
    """In order, so that Ansible ends its workers, which lead sessions of their own; or else by force."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=ENDING_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
