"""Writes a folder of this machine from which a Prometheus watches an inventory: configuration, alert rules, targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

SOURCES = Path(__file__).resolve().parents[2] / "observability"
CONFIGURATION, ALERTS, TARGETS, TRUSTED = "prometheus.yml", "alerts.yml", "targets.json", "ca.pem"
# The line of the configuration in whose place stands what is trusted, where registries speak TLS.
UNSECURED = "    # tls_config: {ca_file: ca.pem}\n"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Found by the task's name; nothing runs on any host."""

    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset(("directory", "targets", "trusted"))

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        directory = Path(self._task.args["directory"])
        contents = configuration(self._task.args.get("trusted") or "")
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


def configuration(trusted: str) -> dict[str, str]:
    """The contents of its files by their names; `trusted` are certificates in PEM, or nothing."""
    contents = {name: (SOURCES / name).read_text(encoding="utf-8") for name in (CONFIGURATION, ALERTS)}
    if trusted:
        secured = contents[CONFIGURATION].replace(UNSECURED, UNSECURED.replace("# ", ""))
        contents |= {TRUSTED: trusted, CONFIGURATION: secured}
    return contents


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
