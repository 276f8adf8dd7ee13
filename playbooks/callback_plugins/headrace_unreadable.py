"""Ends a run before its first play where a file of the inventory's variables cannot be read, and names that file.

Ansible itself reads such a file when it comes to a host that it is for, and then tells neither the file nor, of an encrypted one,
what to do. Only files of groups and hosts that the inventory has are looked at, as Ansible does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.vault import AnsibleVaultError
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: headrace_unreadable
type: notification
short_description: Names files of the inventory that cannot be read
description:
  - Reads the inventory's group_vars and host_vars before the first play, and ends the run with 1 where one cannot be read.
author: The headrace contributors
"""

PASSWORD = "in a file that --vault-password-file or ANSIBLE_VAULT_PASSWORD_FILE names, or to --ask-vault-pass"


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


def files(inventory: Any, loader: Any) -> Iterator[str]:
    """The files of variables beside the sources of an inventory, each once."""
    entities = {"group_vars": list(inventory.groups), "host_vars": list(inventory.hosts)}
    folders = [source if os.path.isdir(source) else os.path.dirname(source) for source in inventory._sources]
    for folder in dict.fromkeys(folders):
        for kind, names in entities.items():
            place = os.path.join(folder, kind)
            if os.path.isdir(place):
                for name in names:
                    yield from loader.find_vars_files(place, name)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Looks once, at the first play."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "headrace_unreadable"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._looked = False

    def v2_playbook_on_play_start(self, play: Any) -> None:
        if self._looked:
            return
        self._looked = True
        manager = play.get_variable_manager()
        found = [problem(path, manager._loader) for path in files(manager._inventory, manager._loader)]
        told = [each for each in found if each]
        for each in told:
            self._display.error(each, wrap_text=False)
        if told:
            raise SystemExit(1)
