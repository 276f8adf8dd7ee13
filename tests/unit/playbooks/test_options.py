"""A run whose options name what is not there ends before its first play."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.plugins.loader import init_plugin_loader
from ansible.utils.context_objects import CLIArgs
from ansible.vars.manager import VariableManager

PLUGIN = Path(__file__).resolve().parents[3] / "playbooks" / "callback_plugins" / "headrace_options.py"
specification = importlib.util.spec_from_file_location("headrace_options", PLUGIN)
assert specification is not None
assert specification.loader is not None
plugin: Any = importlib.util.module_from_spec(specification)
specification.loader.exec_module(plugin)

# Once a process, as ansible-playbook does.
init_plugin_loader()
PLAYBOOK = """
- hosts: all
  gather_facts: false
  tags: [always]
  tasks:
    - name: Look
      ansible.builtin.debug:
      tags: [inventory]
- hosts: all
  gather_facts: false
  tasks:
    - name: Restart
      tags: [broker]
      block:
        - name: Restart it
          ansible.builtin.debug:
          tags: [slowly]
"""


@pytest.fixture
def play(tmp_path: Path) -> Any:
    """What a callback is given, of a playbook for one host `east-1` in the group `broker`."""
    (tmp_path / "mine.yml").write_text(PLAYBOOK)
    (tmp_path / "hosts.yml").write_text("all: {children: {broker: {hosts: {east-1: }}}}\n")
    loader = DataLoader()
    inventory = InventoryManager(loader=loader, sources=[str(tmp_path / "hosts.yml")])
    variables = VariableManager(loader=loader, inventory=inventory)
    variables._extra_vars = {"support_dir": "/srv", "gate_timeout_s": 5, "mine": 1}
    playbook = Playbook.load(str(tmp_path / "mine.yml"), variable_manager=variables, loader=loader)
    return playbook, SimpleNamespace(get_variable_manager=lambda: variables)


def told(
    play: Any, options: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, good: bool = False
) -> list[str]:
    monkeypatch.setattr(plugin.context, "CLIARGS", CLIArgs(options))
    callback = plugin.CallbackModule()
    said: list[str] = []
    monkeypatch.setattr(callback._display, "error", lambda text, **_: said.append(text))
    callback.v2_playbook_on_start(play[0])
    with nullcontext() if good else pytest.raises(SystemExit, match="1"):
        callback.v2_playbook_on_play_start(play[1])
    callback.v2_playbook_on_play_start(play[1])
    return said


def test_a_name_that_is_not_there_is_told_of_each_option(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"subset": "east-1,east-2", "tags": ("brokers", "slowly"), "skip_tags": ("look",)}
    has = "it has broker, inventory, slowly, and --limit takes hosts and groups."
    assert told(play, options, monkeypatch) == [
        "--limit names east-2, which is neither a host nor a group of the inventory.",
        f"--tags names brokers, which is no tag of mine.yml: {has}",
        f"--skip-tags names look, which is no tag of mine.yml: {has}",
    ]


def test_a_variable_that_nothing_reads_is_told_with_the_nearest(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    play[1].get_variable_manager()._extra_vars = {"headrace_remove_dat": True, "support_sinse": "-1h"}
    options = {"subset": None, "tags": ("all",), "skip_tags": ()}
    assert told(play, options, monkeypatch) == [
        "-e sets headrace_remove_dat, which nothing of the kit reads: the nearest name that is read is headrace_remove_data.",
        "-e sets support_sinse, which nothing of the kit reads: the nearest name that is read is support_since.",
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"subset": None, "tags": ("all",), "skip_tags": ()},
        {"subset": "broker:!east-1", "tags": ("broker", "inventory"), "skip_tags": ("always",)},
    ],
)
def test_names_that_are_there_are_passed_over(
    play: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(play, options, monkeypatch, good=True) == []
