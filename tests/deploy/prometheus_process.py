"""A real Prometheus on a folder that playbooks/prometheus.yml wrote, quick enough for a test."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from demo_process import eventually
from processes import free_port
from prometheus_tools import tool


class PrometheusProcess:
    """Scrapes and evaluates every three seconds, and has alerts fire as soon; gone at the end."""

    def __init__(self, folder: Path) -> None:
        for name, pattern, quick in (
            ("prometheus.yml", r"_interval: \d+s", "_interval: 3s"),
            ("alerts.yml", r"for: \d+m", "for: 3s"),
        ):
            file = folder / name
            text, changed = re.subn(pattern, quick, file.read_text(encoding="utf-8"))
            assert changed >= 2, name
            file.write_text(text, encoding="utf-8")
        address = f"127.0.0.1:{free_port()}"
        self._url = f"http://{address}/api/v1/"
        command = [
            tool("prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--web.listen-address={address}",
        ]
        self._log = folder / "prometheus.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, f"--storage.tsdb.path={folder}/data"], stdout=log, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> PrometheusProcess:
        assert eventually(self._answers), self._log.read_text()[-3000:]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        url = f"{self._url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that a query has now."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """The labels of what fires, with its `summary`, by alert."""
        found: dict[str, list[dict[str, str]]] = {}
        for alert in self.get("alerts")["alerts"]:
            if alert["state"] == "firing":
                told = {**alert["labels"], "summary": alert["annotations"]["summary"]}
                found.setdefault(alert["labels"]["alertname"], []).append(told)
        return found

    def _answers(self) -> bool:
        try:
            self.query("up")
        except OSError:
            return False
        return True
