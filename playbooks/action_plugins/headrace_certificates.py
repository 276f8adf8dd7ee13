"""Makes the certificates that brokers of the inventory lack, here and not on a host; see headrace_inventory/authority.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.authority import AuthorityError, make_missing, nothing_made


class ActionModule(ActionBase):  # type: ignore[misc]
    """Found by the module's name."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        variables = task_vars or {}
        groups, hostvars = variables["groups"], variables["hostvars"]
        try:
            made = make_missing(
                groups,
                hostvars,
                renew=bool(self._task.args.get("renew", False)),
                dry=self._task.check_mode,
            )
        except (AuthorityError, OSError) as error:
            return {"failed": True, "msg": str(error)}
        before, after = "", "".join(f"{line}\n" for line in made)
        said = made or [nothing_made(groups, hostvars)]
        return {"changed": bool(made), "said": said, "diff": {"before": before, "after": after}}
