"""Ends a run before its first play where --limit, --tags, --skip-tags or -e name what is not there: Ansible passes that over.

What a play would have done to a host, or with a tag or variable, whose name is a slip is told rather than passed over as if it
were done.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ansible.playbook.block import Block
from ansible.plugins.callback import CallbackBase

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.names import unknown_arguments
from headrace_inventory.problems import limit_problems

DOCUMENTATION = r"""
name: headrace_options
type: notification
short_description: Refuses names in a run's options that are not there
description:
  - Ends a run with 1 before its first play where --limit names no host or group, --tags no tag of the playbook, or -e nothing
    that the kit reads.
author: The headrace contributors
"""

# Its CLIARGS, the options of the run, are set after this file is loaded.
context: Any = importlib.import_module("ansible.context")
# Ansible's own (ansible.playbook.taggable).
ANY_TAGS = frozenset({"all", "always", "never", "tagged", "untagged"})


def tag_problems(option: str, named: Iterable[str], known: set[str], playbook: str) -> Iterator[str]:
    """One sentence for each of these tags that the playbook does not have."""
    has = f"it has {', '.join(sorted(known))}" if known else "it has none"
    for tag in named:
        if tag not in known | ANY_TAGS:
            yield f"{option} names {tag}, which is no tag of {playbook}: {has}, and --limit takes hosts and groups."


def tags_of(plays: Iterable[Any]) -> set[str]:
    """Those of all tasks that are known before a run, and of their plays."""
    found: set[str] = set()
    for play in plays:
        found |= {*play.tags, *(tag for block in play.compile() for tag in _tags_in(block))}
    return found - ANY_TAGS


def _tags_in(part: Any) -> Iterator[str]:
    yield from part.tags
    if isinstance(part, Block):
        for each in (*part.block, *part.rescue, *part.always):
            yield from _tags_in(each)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Looks once, at the first play."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "headrace_options"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._playbook: Any = None

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._playbook = playbook

    def v2_playbook_on_play_start(self, play: Any) -> None:
        playbook, self._playbook = self._playbook, None
        if playbook is None:
            return
        manager = play.get_variable_manager()
        problems = (
            _wrong_limit(manager._inventory) + _wrong_tags(playbook) + unknown_arguments(manager.extra_vars)
        )
        for problem in problems:
            self._display.error(problem, wrap_text=False)
        if problems:
            raise SystemExit(1)


def _wrong_limit(inventory: Any) -> list[str]:
    hosts = {name: [host.name for host in group.get_hosts()] for name, group in inventory.groups.items()}
    return limit_problems(context.CLIARGS.get("subset") or "", {**hosts, "all": list(inventory.hosts)})


def _wrong_tags(playbook: Any) -> list[str]:
    named = {
        "--tags": [*context.CLIARGS.get("tags", ())],
        "--skip-tags": [*context.CLIARGS.get("skip_tags", ())],
    }
    if not {tag for tags in named.values() for tag in tags} - ANY_TAGS:
        return []
    known, name = tags_of(playbook.get_plays()), Path(playbook._file_name).name
    return [problem for option, tags in named.items() for problem in tag_problems(option, tags, known, name)]
