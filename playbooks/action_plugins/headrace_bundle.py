"""Writes what the hosts of the play handed over into one archive on this machine, and says what it has not."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.release import __version__ as ansible_version
from ansible.utils.display import Display

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.looks import answers
from headrace_views.bundle import members, write


class ActionModule(ActionBase):  # type: ignore[misc]
    """Found by the task's name; nothing runs on any host."""

    _requires_connection = False
    _VALID_ARGS = frozenset(("directory", "hosts", "health"))

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        now_s = time.time()
        hostvars = (task_vars or {})["hostvars"]
        hosts = [str(host) for host in self._task.args["hosts"]]
        asked = {host: hostvars[host].get("support_found", {}) for host in hosts}
        collected = {host: found for host, found in asked.items() if not found.get("skipped")}
        about = f"made {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(now_s))}\nansible-core {ansible_version}\n"
        texts = {"ABOUT": about, "health": str(self._task.args["health"])}
        files, missing = members(collected, answers(hosts, hostvars), texts)
        name = time.strftime("headrace-%Y%m%dT%H%M%SZ", time.gmtime(now_s))
        path = write(Path(self._task.args["directory"]), name, files, now_s)
        display = Display()
        for sentence in missing:
            display.display(f"Missing: {sentence}")
        display.display(f"Support bundle: {path} ({path.stat().st_size / 1e6:.1f} MB, {len(files)} files)")
        return {"changed": False, "path": str(path), "missing": missing}
