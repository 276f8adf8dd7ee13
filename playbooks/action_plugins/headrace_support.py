"""Runs headrace_support; a host that does not answer, or has nothing to hand over, is told of and fails nothing."""

from __future__ import annotations

import sys
from pathlib import Path

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.asking import LookingAction


class ActionModule(LookingAction):
    """Found by the module's name."""
