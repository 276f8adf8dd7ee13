"""Runs headrace_installed; a host that does not answer fails."""

from __future__ import annotations

import sys
from pathlib import Path

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.asking import AskingAction


class ActionModule(AskingAction):
    """Found by the module's name."""
