"""The page of benchmarks says what the raw runs say, and the one in the repository is current."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import (
    broker_cells,
    budgets,
    catching_up_cells,
    flows,
    load_cells,
    mirror_cells,
    mirror_distance_cells,
    misses,
    page,
)
from bench.command import bench
from bench.contest import KAFKA, in_turns
from bench.groups import CELLS, KAFKA_CELLS, PAIRED_CELLS
from bench.peers import Peer
from bench.workloads import ALONE, CLUSTERED, FETCH, LATENCY_1K, PRODUCE_50, PRODUCE_50_BY_50

DOCS = Path(__file__).parents[2] / "docs"
PAIRS_MIN, ROUNDS_MIN = 7, 3
BATCH_50, START = PRODUCE_50.name, broker_cells.START_DEV


def run(cell: str, **figures: Any) -> dict[str, Any]:
    usual = {
        "messages": 1_000_000,
        "bytes": 200_000_000,
        "seconds": 2.0,
        "cpu_seconds": 0.5,
        "memory_mib": 40,
        "figures": {},
    }
    return {"cell": cell, "peer": "headrace", "round": 0, "settings": {}, **usual, **figures}


def record(*runs: dict[str, Any]) -> dict[str, Any]:
    machine = {"processor": "P", "cores": 2, "memory_mib": 8192, "kernel": "6.1", "python": "3.11"}
    effort = {"warm_up_seconds": 60.0}
    head = {"date": "2026-01-02", "congestion_control": "cubic", "load_average": [0.1, 0.2], "effort": effort}
    return {**head, "machine": machine, "runs": list(runs)}


def records(*runs: dict[str, Any]) -> dict[str, Any]:
    """The runs as they are kept, by cell."""
    cells = dict.fromkeys(run["cell"] for run in runs)
    return {cell: record(*(run for run in runs if run["cell"] == cell)) for cell in cells}


def rendered(*runs: dict[str, Any]) -> str:
    return page.render(records(*runs))


def pairs(cell: str, own: Iterable[dict[str, Any]], rivals: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rounds of headrace and of Apache Kafka."""
    return [
        run(cell, peer=peer, round=number, **figures)
        for peer, runs in (("headrace", own), (KAFKA, rivals))
        for number, figures in enumerate(runs)
    ]


def test_the_page_in_the_repository_is_made_from_the_raw_runs_beside_it() -> None:
    assert (DOCS / "benchmarks.md").read_text() == page.render(page.read(DOCS))
    assert (DOCS / page.PLOT).read_text().startswith("<?xml")


@pytest.mark.parametrize("cell", page.read(DOCS))
def test_the_raw_runs_in_the_repository_hold_a_cell_several_times(cell: str) -> None:
    runs = page.read(DOCS)[cell]["runs"]
    rounds = {run["round"] for run in runs if run["peer"] == "headrace"}
    assert cell in CELLS
    assert {run["cell"] for run in runs} == {cell}
    assert len(rounds) >= (PAIRS_MIN if cell in PAIRED_CELLS else ROUNDS_MIN)
    rivals = {run["round"] for run in runs if run["peer"] == KAFKA}
    assert rounds == rivals or cell not in PAIRED_CELLS
    assert not rivals or cell in KAFKA_CELLS


def test_every_cell_has_a_budget() -> None:
    assert {budget.cell for budget in budgets.BUDGETS} == set(CELLS)


def test_the_page_is_read_in_a_minute() -> None:
    text = (DOCS / "benchmarks.md").read_text()
    assert len(CELLS) <= 50
    assert len(re.findall(r"^\|---", text, re.MULTILINE)) == 1
    assert text.count("![") == 1


def test_a_cell_is_named_for_what_the_client_is_told() -> None:
    name = "produce, batch of 50, 50 connections"
    assert ALONE[name] is PRODUCE_50_BY_50
    assert ALONE[name].settings == {"partitions": 1, "connections": 50, "batch": 50}
    replicated = CLUSTERED["produce, batch of 1, 12 partitions, 50 connections, 3 replicas"]
    assert replicated.settings == {"partitions": 12, "connections": 50, "batch": 1, "acks": "all"}


def test_the_one_that_began_a_pair_ends_the_next() -> None:
    a, b = (Peer(name=name, bootstrap="", process=None, start_seconds=0.0) for name in "ab")  # type: ignore[arg-type]
    order = "".join(peer.name for _, peer in in_turns([a, b], 4))
    assert order == "abbaabba"


def test_a_row_shows_median_lowest_and_highest() -> None:
    text = rendered(*(run(BATCH_50, cpu_seconds=cpu, round=n) for n, cpu in enumerate((0.4, 0.9, 0.5))))
    assert f"| {BATCH_50} | CPU per message (µs) | 0.5 (0.4–0.9) | – | – | ≤ 0.8 | met |" in text


def test_a_rival_stands_beside_with_the_ratios_of_pairs_not_of_medians() -> None:
    own = [{"messages": messages} for messages in (100, 200, 900)]
    rivals = [{"messages": messages} for messages in (50, 20, 300)]
    text = rendered(*pairs(BATCH_50, own, rivals))
    assert f"| {BATCH_50} | messages/s | 100 (50–450) | 25 (10–150) | 3 (2–10) | ≥ 2 × | met |" in text
    assert f"{KAFKA} warmed up for 60 s" in text


def test_a_round_that_lacks_one_of_the_two_makes_no_pair() -> None:
    text = rendered(*pairs(BATCH_50, [{"messages": 100}, {"messages": 1}], [{"messages": 100}]))
    assert f"| {BATCH_50} | messages/s | 25.2 (0.5–50) | 50 | 1 | ≥ 2 × | **not met** |" in text


def test_without_a_rival_its_comparisons_are_not_measured() -> None:
    text = rendered(run(BATCH_50))
    assert f"| {BATCH_50} | messages/s | 500,000 | – | – | ≥ 2 × | not measured |" in text
    assert f"| {BATCH_50} | CPU per message (µs) | 0.5 | – | – | ≤ 0.8 | met |" in text
    assert "warmed up" not in text


def test_a_latency_is_held_against_the_rivals() -> None:
    own = [{"figures": {"p50_ms": 0.5, "p99_ms": p99, "p999_ms": 9.0}} for p99 in (1.0, 2.0, 4.0)]
    rivals = [{"figures": {"p50_ms": 1.0, "p99_ms": 4.0, "p999_ms": 9.0}}] * 3
    text = rendered(*pairs(LATENCY_1K.name, own, rivals))
    assert f"| {LATENCY_1K.name} | p99 (ms) | 2 (1–4) | 4 (4–4) | 0.5 (0.25–1) | ≤ 1 × | met |" in text


def test_a_ceiling_is_met_up_to_its_limit() -> None:
    assert "| 0.8 | – | – | ≤ 0.8 | met |" in rendered(run(BATCH_50, cpu_seconds=0.8))
    assert "| 0.81 | – | – | ≤ 0.8 | **not met** |" in rendered(run(BATCH_50, cpu_seconds=0.81))


def test_a_floor_is_met_from_its_limit_on() -> None:
    cell = mirror_distance_cells.NEAR
    text = rendered(run(cell, bytes=150_000_000, seconds=1.0))
    assert f"| {cell} | MB/s | 150 | – | – | ≥ 150 | met |" in text
    text = rendered(run(cell, bytes=149_000_000, seconds=1.0))
    assert f"| {cell} | MB/s | 149 | – | – | ≥ 150 | **not met** |" in text


def test_the_mirror_is_held_against_mirror_maker_and_catching_up_against_the_mirror() -> None:
    cell, beside = mirror_cells.BATCH_50, catching_up_cells.BATCH_50
    own, rivals = [{"bytes": 500_000_000, "cpu_seconds": 1.0}], [{"bytes": 50_000_000, "cpu_seconds": 1.0}]
    text = rendered(*pairs(cell, own, rivals), run(beside, bytes=400_000_000, cpu_seconds=1.0))
    assert f"| {cell} | MB per CPU-second | 500 | 50 | 10 | ≥ 10 × | met |" in text
    assert f"| {beside} | MB per CPU-second | 400 | – | 0.8 | ≥ 0.8 × the mirror's | met |" in text


def test_a_budget_is_judged_by_the_median_of_the_rounds() -> None:
    rates = [run(load_cells.FLAT, messages=number, seconds=1.0) for number in (2_000_000, 900_000, 950_000)]
    assert "| 950,000 (900,000–2,000,000) | – | – | ≥ 1,000,000 | **not met** |" in rendered(*rates)


def test_a_cell_that_does_not_exist_is_refused_with_where_their_names_are() -> None:
    outcome = CliRunner().invoke(bench, ["--cell", "nonsense"])
    assert outcome.exit_code == 2
    assert "'nonsense'" in outcome.output
    assert "--list" in outcome.output
    listed = CliRunner().invoke(bench, ["--list"])
    assert listed.output.splitlines() == list(CELLS)


@pytest.mark.acceptance
def test_a_cell_that_ran_replaces_its_raw_runs_and_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_JARS", str(tmp_path))
    page.keep(tmp_path, records(run(FETCH.name), run(START, seconds=99.0)))
    before = page.read(tmp_path)
    outcome = CliRunner().invoke(bench, ["--pairs", "1", "--cell", START, "--docs", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    kept = page.read(tmp_path)
    assert list(kept) == [START, FETCH.name], "in the order of the page"
    assert kept[FETCH.name] == before[FETCH.name]
    assert [run["peer"] for run in kept[START]["runs"]] == ["headrace"]
    assert kept[START]["runs"][0]["seconds"] < 99
    assert (tmp_path / "benchmarks.md").read_text() == page.render(kept)


@pytest.mark.acceptance
def test_without_jars_headrace_is_measured_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KAFKA_JARS", str(tmp_path))
    monkeypatch.setattr(flows, "WARM_UP_SECONDS", dict.fromkeys(flows.WARM_UP_SECONDS, 0.1))
    effort = ["--pairs", "1", "--seconds", "0.2", "--warm-up", "0"]
    outcome = CliRunner().invoke(bench, ["--cell", BATCH_50, "--docs", str(tmp_path), *effort])
    assert outcome.exit_code == 0, outcome.output
    assert "headrace is measured alone" in outcome.output
    assert [run["peer"] for run in page.read(tmp_path)[BATCH_50]["runs"]] == ["headrace"]


def test_a_miss_has_its_profile_beside_it_and_what_is_met_has_none() -> None:
    cell = PRODUCE_50_BY_50.name
    quick, slow = {"seconds": 1.0, "cpu_seconds": 0.1}, {"seconds": 4.0, "cpu_seconds": 4.0}
    profile = misses.PROFILES[cell]
    assert profile in rendered(*pairs(cell, [slow], [quick]))
    assert profile not in rendered(*pairs(cell, [quick], [slow]))


def test_profiles_are_of_cells_that_there_are() -> None:
    assert set(misses.PROFILES) <= set(CELLS)
