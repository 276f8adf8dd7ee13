"""Debian's Prometheus for tests, and what the files of observability/ ask it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
OBSERVABILITY = CHECKOUT / "observability"
ALERTS = OBSERVABILITY / "alerts.yml"
DASHBOARDS = sorted((OBSERVABILITY / "dashboards").glob("*.json"))
# A selector of one metric: its name, and its matchers if there are any.
SELECTOR = re.compile(r"\b((?:headrace|process|haproxy)_\w+|up)\b(?!\s*\()(\{[^}]*\})?")
VARIABLES = {"$__rate_interval": "1m", "$datacenter": ".*"}


@dataclass(frozen=True)
class Query:
    """One question, and who asks it."""

    asker: str
    expression: str

    @property
    def selectors(self) -> set[str]:
        return {name + (matchers or "") for name, matchers in SELECTOR.findall(self.expression)}

    @property
    def metrics(self) -> set[str]:
        return {name for name, _ in SELECTOR.findall(self.expression)}


def alerts() -> list[dict[str, Any]]:
    """The alert rules."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alert_queries() -> list[Query]:
    return [Query(rule["alert"], rule["expr"]) for rule in alerts()]


def panels(dashboard: Path) -> Iterator[dict[str, Any]]:
    """The panels that ask something."""
    for panel in json.loads(dashboard.read_text(encoding="utf-8"))["panels"]:
        if panel["type"] != "row":
            yield panel


def dashboard_queries() -> list[Query]:
    """What the panels ask, for all datacenters, with their variables filled in as Grafana does."""
    found: list[Query] = []
    for dashboard in DASHBOARDS:
        for panel in panels(dashboard):
            for target in panel["targets"]:
                expression = target["expr"]
                for variable, value in VARIABLES.items():
                    expression = expression.replace(variable, value)
                found.append(Query(f"{dashboard.name}: {panel['title']}", expression))
    return found


def tool(name: str) -> str:
    """A program of Prometheus'; without it the test is skipped, but not in CI."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed: apt-get install prometheus, as scripts/setup test does"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found
