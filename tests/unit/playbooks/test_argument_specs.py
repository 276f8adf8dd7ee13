"""Every variable that a role or a play reads is stated: preflight checks those, and refuses all others of the kit's prefixes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from playbooks_kit import PLAYBOOKS

ROLES = sorted(role.name for role in (PLAYBOOKS / "roles").iterdir())
# An operator of arithmetic, beside a variable.
BEFORE, AFTER = r"(?:[*/+-]|//) *", r" *(?:[*/+-]|//)"
# What a task or a play makes for the ones after it.
MADE = re.compile(r"(?:register: |loop_var: |add_host:\n.*?groups: )(\w+)", re.DOTALL)


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {}


def stated(role: str) -> set[str]:
    specs = read(PLAYBOOKS / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    return {name for spec in specs.values() for name in spec["options"]}


def set_by(role: str) -> set[str]:
    """The role's own variables, which nobody else sets."""
    folder = PLAYBOOKS / "roles" / role
    names = {name for file in folder.glob("vars/*.yml") for name in read(file)}
    for file in folder.glob("tasks/*.yml"):
        text = file.read_text(encoding="utf-8")
        names |= set(MADE.findall(text))
        for task in all_tasks(read(file)):
            names |= set(task.get("ansible.builtin.set_fact", {})) | set(task.get("vars", {}))
    return names


def all_tasks(tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The tasks with those of their blocks."""
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from all_tasks(task.get(part, []))


def text_of(role: str) -> str:
    folder = PLAYBOOKS / "roles" / role
    parts = [file for part in ("tasks", "templates", "vars", "defaults") for file in folder.glob(f"{part}/*")]
    # Comments, module names and names of groups and roles in quotes are no variables.
    return "\n".join(re.sub(r"(?m)^\s*#.*$", "", file.read_text(encoding="utf-8")) for file in parts)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_states_what_it_has_defaults_for_and_what_it_reads(role: str) -> None:
    defaults = {name for file in (PLAYBOOKS / "roles" / role).glob("defaults/*.yml") for name in read(file)}
    # A fact may have a value before it is found.
    assert defaults - set_by(role) <= stated(role)
    used = set(re.findall(rf"(?<![\w./'-]){role}_\w+(?![\w./'])", text_of(role)))
    assert used <= stated(role) | set_by(role)


@pytest.mark.parametrize("role", ROLES)
def test_every_option_says_what_it_is_and_of_which_type(role: str) -> None:
    specs = read(PLAYBOOKS / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    for spec in specs.values():
        assert spec["short_description"]
        for name, option in spec["options"].items():
            assert {"type", "description"} <= option.keys(), name
            assert option.get("no_log") is True or not name.endswith(("_secret", "_secrets")), name


@pytest.mark.parametrize("role", ROLES)
def test_a_role_calculates_with_numbers(role: str) -> None:
    """What `-e name=7` gives is a text, and twice that text is 77."""
    specs = read(PLAYBOOKS / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    numbers = [
        name for spec in specs.values() for name, option in spec["options"].items() if option["type"] == "int"
    ]
    for expression in re.findall(r"\{\{.*?\}\}", text_of(role)):
        for name in numbers:
            assert not re.search(rf"{BEFORE}{name}\b(?! \| int)|\b{name}{AFTER}", expression), expression
