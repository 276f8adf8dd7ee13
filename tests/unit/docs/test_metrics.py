"""docs/metrics.md, and docs/mirror.md for the mirror, name what the pages have, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

import metrics_kit

DOCS = Path(__file__).resolve().parents[3] / "docs"


def listed(heading: str, page: str = "metrics.md") -> set[str]:
    """The names in the table below a heading."""
    text = (DOCS / page).read_text(encoding="utf-8").split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_tables_list_what_brokers_mirrors_and_registries_serve() -> None:
    assert listed("A broker") == metrics_kit.of_a_broker()
    assert listed("Metrics", "mirror.md") == metrics_kit.of_the_mirror()
    every_process = metrics_kit.of_the_process() | {"headrace_build_info"}
    assert listed("A registry") == metrics_kit.of_a_registry() - every_process
    assert every_process <= metrics_kit.of_a_broker() | {"python_info"}


def test_the_tables_list_what_works_in_rounds_serves(tmp_path: Path) -> None:
    common = {name.removeprefix("_") for name in metrics_kit.of_rounds("")}
    assert listed("What works in rounds") == common
    assert listed("A load") == metrics_kit.of_a_load()
    assert listed("A counter's own") == metrics_kit.of_a_counter()
    assert listed("The auditor's own") == metrics_kit.of_the_auditor(tmp_path)
