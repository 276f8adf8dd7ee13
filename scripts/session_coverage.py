"""The section of docs/compatibility.md about what the conformance sessions saw, from what they recorded."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "conformance"))

from coverage_record import Covered, by_key, load
from documented_errors import unprovoked

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.table import HANDLERS
from headrace.broker.wire.api import APIS

NOTHING = Covered(set(), set(), set())
INTRODUCTION = """
What the sessions of `tests/conformance` provoked in both brokers, recorded from their answers (`coverage.jsonl`, which every run
checks): versions, error codes, and for the codes that Kafka's documentation names and no session saw, the reason
(`documented_errors.py`).

| key | API | versions | error codes seen in both | documented, but not seen | sessions |
|---|---|---|---|---|---|
"""


def section() -> str:
    """A line for each key that is served."""
    covered = by_key(load())
    return INTRODUCTION + "".join(_row(key, covered.get(key, NOTHING)) for key in sorted(HANDLERS)) + "\n"


def _row(key: int, covered: Covered) -> str:
    versions = f"{min(covered.versions)}-{max(covered.versions)}" if covered.versions else ""
    seen = ", ".join(ErrorCode(code).name for code in sorted(covered.codes))
    cells = [
        str(key),
        APIS[key].name,
        versions,
        seen,
        _unseen(key, covered.codes),
        _sessions(covered.sessions),
    ]
    return f"| {' | '.join(cells)} |\n"


def _unseen(key: int, seen: set[int]) -> str:
    """The codes by their reasons."""
    by_reason: dict[str, list[str]] = {}
    for code, why in unprovoked(key, seen).items():
        by_reason.setdefault(why or "no reason", []).append(code.name)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in by_reason.items())


def _sessions(tests: set[str]) -> str:
    """The test functions by their modules."""
    by_module: dict[str, list[str]] = {}
    for test in sorted(tests):
        module, _, name = test.partition("::")
        by_module.setdefault(module.removeprefix("test_conformance_"), []).append(name.removeprefix("test_"))
    return "; ".join(f"*{module}*: {', '.join(names)}" for module, names in by_module.items())
