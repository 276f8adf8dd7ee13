"""Grafana's dashboards ask what Prometheus understands, for metrics that services serve, and leave no panel upon another."""

from __future__ import annotations

import json
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import metrics_kit
import pytest
import yaml
from prometheus_tools import DASHBOARDS, dashboard_queries, panels, tool

GRID_WIDTH = 24


def test_the_metrics_of_every_panel_are_served(tmp_path: Path) -> None:
    served = metrics_kit.of_all(tmp_path)
    for query in dashboard_queries():
        assert query.metrics, query
        own = {
            name.removesuffix("_bucket") for name in query.metrics if not name.startswith(("haproxy_", "up"))
        }
        assert own <= served, (query.asker, own - served)


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query.expression}
        for number, query in enumerate(dashboard_queries())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    done = subprocess.run(
        [tool("promtool"), "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_panels_stand_beside_each_other_and_take_their_source_from_a_variable(file: Path) -> None:
    dashboard = json.loads(file.read_text(encoding="utf-8"))
    assert dashboard["uid"] == f"headrace-{file.stem}"
    assert dashboard["templating"]["list"][0]["name"] == "datasource"
    found = list(panels(file))
    assert len({panel["id"] for panel in found}) == len(found) == len({panel["title"] for panel in found})
    for panel in found:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= GRID_WIDTH
    for one, other in combinations(found, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )
