"""Ends a run before its first play where variables of the inventory cannot be read, or would be passed over.

Ansible reads a file of variables when it comes to a host that it is for, and then tells neither the file nor, of an encrypted
one, what to do. What the plays' own group_vars/all.yml sets it takes from there, whatever an inventory says of all hosts, or in
hosts.yml of a group's. Only files of groups and hosts that the inventory has are looked at, as Ansible does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.vault import AnsibleVaultError, VaultHelper
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: headrace_variables
type: notification
short_description: Names variables of the inventory that nobody would read
description:
  - Looks at the inventory's variables before the first play, and ends the run with 1 where some would be read by nobody.
author: The headrace contributors
"""

PASSWORD = "in a file that --vault-password-file or ANSIBLE_VAULT_PASSWORD_FILE names, or to --ask-vault-pass"


FOLLOWING = Path(__file__).resolve().parents[1] / "group_vars" / "all.yml"
# What tells two services of one machine apart.
OF_A_HOST = {"headrace_service_prefix"}


def problem(path: str, loader: Any) -> str | None:
    """Why a file holds no variables, in a sentence without a word of its content."""
    try:
        found = loader.load_from_file(path, cache="none")
    except AnsibleVaultError:
        given = (
            "another password than was given" if loader._vault.secrets else "a password, and none was given"
        )
        return f"{path} is encrypted with {given}: give it {PASSWORD}."
    except AnsibleError as error:
        line = getattr(error.obj, "line_num", None)
        place = f", line {line}" if line else ""
        return f"{path}{place}, cannot be read: {error.message.rstrip('.')}."
    if found and not isinstance(found, Mapping):
        return f"{path} holds no variables: write each as NAME: VALUE."
    return None


def files(inventory: Any, loader: Any, folder: str, names: Iterable[str]) -> list[str]:
    """The files of these groups' or hosts' variables beside the sources of an inventory, each once."""
    beside = [source if os.path.isdir(source) else os.path.dirname(source) for source in inventory._sources]
    places = [place for each in dict.fromkeys(beside) if os.path.isdir(place := os.path.join(each, folder))]
    return [path for place in places for name in names for path in loader.find_vars_files(place, name)]


def unreadable(inventory: Any, loader: Any) -> Iterator[str]:
    for folder, names in (("group_vars", inventory.groups), ("host_vars", inventory.hosts)):
        for path in files(inventory, loader, folder, names):
            sentence = problem(path, loader)
            if sentence is not None:
                yield sentence


def locked(inventory: Any, loader: Any) -> Iterator[str]:
    """Variables of Ansible's own, which it reads before any play does, and of which it names an option alone."""
    given = {
        path: loader.load_from_file(path, cache="none") or {}
        for folder, names in (("group_vars", inventory.groups), ("host_vars", inventory.hosts))
        for path in files(inventory, loader, folder, names)
    }
    given |= {f"The group {name}": group.vars for name, group in inventory.groups.items()}
    given |= {f"The host {name}": host.vars for name, host in inventory.hosts.items()}
    for place, variables in given.items():
        for name, value in variables.items():
            if name.startswith("ansible_") and is_locked(value, loader):
                yield (
                    f"{place} has an {name} that is encrypted with another password than was given, or none was: give it "
                    f"{PASSWORD}."
                )


def is_locked(value: Any, loader: Any) -> bool:
    ciphertext = VaultHelper.get_ciphertext(value, with_tags=False)
    if ciphertext is None:
        return False
    try:
        loader._vault.decrypt(ciphertext)
    except AnsibleVaultError:
        return True
    return False


def passed_over(inventory: Any, loader: Any) -> Iterator[str]:
    """What is set where the plays' own variables come before it."""
    given = {
        path: loader.load_from_file(path, cache="none") or {}
        for path in files(inventory, loader, "group_vars", ["all"])
    }
    given |= {f"The group {name}": group.vars for name, group in inventory.groups.items()}
    for place, name in set_in(given, following(loader)):
        yield f"{place} sets {name}, which follows from the rest of the inventory and is not read there: take it out."


def parted(inventory: Any, loader: Any) -> Iterator[str]:
    """What is set where it counts, for some hosts alone: the others would go on with what follows from the inventory."""
    groups = [name for name in inventory.groups if name != "all"]
    given = {
        path: loader.load_from_file(path, cache="none") or {}
        for folder, names in (("group_vars", groups), ("host_vars", inventory.hosts))
        for path in files(inventory, loader, folder, names)
    }
    given |= {f"The host {name}": host.vars for name, host in inventory.hosts.items()}
    for place, name in set_in(given, following(loader) - OF_A_HOST):
        yield f"{place} sets {name}, which follows from the rest of the inventory, and other hosts go by that: take it out."


def following(loader: Any) -> set[str]:
    return set(loader.load_from_file(str(FOLLOWING), cache="none"))


def set_in(given: Mapping[str, Mapping[str, Any]], names: set[str]) -> Iterator[tuple[str, str]]:
    for place, variables in given.items():
        for name in sorted(names & variables.keys()):
            yield place, name


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Looks once, at the first play."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "headrace_variables"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._looked = False

    def v2_playbook_on_play_start(self, play: Any) -> None:
        if self._looked:
            return
        self._looked = True
        manager = play.get_variable_manager()
        inventory, loader = manager._inventory, manager._loader
        told = list(unreadable(inventory, loader)) or [
            *locked(inventory, loader),
            *passed_over(inventory, loader),
            *parted(inventory, loader),
        ]
        for each in told:
            self._display.error(each, wrap_text=False)
        if told:
            raise SystemExit(1)
