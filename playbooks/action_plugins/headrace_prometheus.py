"""Writes a folder of this machine from which a Prometheus watches an inventory: configuration, alert rules, targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

SOURCES = Path(__file__).resolve().parents[2] / "observability"
COPIED = ("prometheus.yml", "alerts.yml")
TARGETS = "targets.json"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Found by the task's name; nothing runs on any host."""

    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset(("directory", "targets"))

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        directory = Path(self._task.args["directory"])
        contents = {name: (SOURCES / name).read_text(encoding="utf-8") for name in COPIED}
        # The targets come last: a Prometheus that runs reads them as soon as they are there.
        contents[TARGETS] = json.dumps(self._task.args["targets"], indent=2) + "\n"
        stale = {name: text for name, text in contents.items() if read(directory / name) != text}
        try:
            if stale and not self._task.check_mode:
                directory.mkdir(parents=True, exist_ok=True)
                for name, text in stale.items():
                    replace(directory / name, text)
        except OSError as error:
            return {
                "failed": True,
                "msg": f"{directory} cannot be written: {error.strerror}; name another with -e prometheus_dir=DIR.",
            }
        return {"changed": bool(stale), "directory": str(directory)}


def read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None


def replace(path: Path, text: str) -> None:
    """Write a file that nobody ever sees half of."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
