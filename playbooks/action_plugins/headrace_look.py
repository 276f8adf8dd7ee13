"""Runs headrace_look; a host that does not answer, or cannot be looked at, is told of and fails nothing."""

from __future__ import annotations

import sys
from pathlib import Path

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.asking import LookingAction


class ActionModule(LookingAction):
    """Found by the module's name."""
