"""Says at a run's end which hosts did not answer, and what was left undone for it.

A host that a module of the kit's does not reach fails there (headrace_inventory.asking) and ends the run; a host that another
module does not reach is passed over from then on. What neither tells is which plays did not run.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: headrace_unanswered
type: notification
short_description: Names the hosts that did not answer, and what was left undone
description:
  - At the end of a run, one sentence for each reason for which hosts could not be reached, whatever their connection.
author: The headrace contributors
"""

# Its CLIARGS, the options of the run, are set after this file is loaded.
context: Any = importlib.import_module("ansible.context")
# Plays of hosts that a play before them finds have nothing to do as long as it has not run.
FOUND_LATER = ("outdated_", "in_turn", "change_")


def sentence(told: str, hosts: list[str], task: str, play: str, plays: list[str], without: str | None) -> str:
    """`plays` are all of the run that have hosts of their own, in their order; `told` says who does not answer, or the first.

    `without` is the --limit that leaves these hosts out, where there is one.
    """
    undone = plays[plays.index(play) + 1 :] if play in plays else []
    after = f"nothing was done of: {', '.join(undone)}" if undone else "no play comes after it"
    several = len(hosts) > 1
    begin = f"{len(hosts)} hosts do not answer, all for one reason: {', '.join(hosts)}. " if several else ""
    asked, them, these = ("They were", "them", "hosts") if several else ("It was", "it", "host")
    leave = f", or leave {them} out with --limit '{without}'" if without else ""
    return (
        f'{begin}{told} {asked} asked for "{task}"; the play "{play}" is unfinished, and {after}. '
        f"Start the {these} and run again{leave}."
    )


def limit_without(
    hosts: list[str], silent: Collection[str], limit: str, limited: Collection[str]
) -> str | None:
    """The run's own --limit without these hosts; None where they are not of it, or nobody is left who answers.

    `limited` are the hosts that `limit` names, and `silent` all that do not answer.
    """
    if not set(hosts) <= set(limited) or set(limited) <= set(silent):
        return None
    return ("," if "," in limit else ":").join([limit or "all", *(f"!{host}" for host in hosts)])


def reason_of(told: str, host: str, address: str) -> str:
    """What is the same of two hosts that do not answer for one reason."""
    for name in sorted({host, address}, key=len, reverse=True):
        told = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", "HOST", told)
    return told


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Hears what Ansible does; says its sentences last."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "headrace_unanswered"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._plays: list[str] = []
        self._play = ""
        self._limited: list[str] = []
        # Hosts, with what is told of the first, by reason, task and play.
        self._unanswered: dict[tuple[str, str, str], tuple[str, list[str]]] = {}

    def v2_playbook_on_start(self, playbook: Any) -> None:
        plays = playbook.get_plays()
        self._plays = [
            play.get_name() for play in plays if not any(name in str(play.hosts) for name in FOUND_LATER)
        ]

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._play = play.get_name()
        inventory = play.get_variable_manager()._inventory
        self._limited = [host.name for host in inventory.get_hosts(ignore_restrictions=True)]

    def v2_runner_on_unreachable(self, result: Any) -> None:
        host = result.host.get_name()
        told = f"Host {host} does not answer, and nothing more is done there."
        self._note(result, host, f"{told} {result.result.get('msg') or ''}".strip())

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        # A task with a loop fails with the results of its items.
        for each in (result.result, *result.result.get("results", ())):
            told = each.get("headrace_unanswered")
            if told and not ignore_errors:
                self._note(result, each.get("headrace_unanswered_host") or result.host.get_name(), told)

    def _note(self, result: Any, host: str, told: str) -> None:
        if any(host in hosts for _, hosts in self._unanswered.values()):
            return
        address = str(result.host.get_vars().get("ansible_host", host))
        key = (reason_of(told, host, address), result.task.get_name(), self._play)
        self._unanswered.setdefault(key, (told, []))[1].append(host)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        silent = {host for _, hosts in self._unanswered.values() for host in hosts}
        limit = context.CLIARGS.get("subset") or ""
        for (_, task, play), (told, hosts) in self._unanswered.items():
            without = limit_without(hosts, silent, limit, self._limited)
            text = sentence(told, hosts, task, play, self._plays, without)
            self._display.display(f"\n{text}", color="red")
