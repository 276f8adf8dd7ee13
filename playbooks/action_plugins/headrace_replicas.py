"""Runs headrace_replicas with the release's own Python; without any release, there are no topics."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.asking import ReleaseAction


class ActionModule(ReleaseAction):
    """Found by the module's name."""

    def without_release(self) -> dict[str, Any]:
        return {"changed": False, "topics": []}
