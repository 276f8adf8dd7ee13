"""Modules of playbooks/, which is no package, to be imported by tests as Ansible imports them on a host."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import ansible.module_utils

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
for folder, path in (
    (PLAYBOOKS / "module_utils", ansible.module_utils.__path__),
    (PLAYBOOKS / "library", sys.path),
):
    if str(folder) not in path:
        path.append(str(folder))


def load(name: str) -> Any:
    """A module of library/, or of module_utils/ by the name `ansible.module_utils.…`."""
    return importlib.import_module(name)
