"""The fixture that holds what the sessions of each test saw against coverage.jsonl, or records it there."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
from coverage_record import entry_of, load, save
from sessions import Seen


@pytest.fixture(autouse=True)
def recorded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hold what the test's sessions saw against its line, or write the line with HEADRACE_RECORD."""
    Seen.compared.clear()
    yield
    if not getattr(request.node, "has_passed", False):
        return
    seen, test, entries = entry_of(Seen.compared), f"{request.path.stem}::{request.node.name}", load()
    if os.environ.get("HEADRACE_RECORD"):
        if seen and entries.get(test) != seen:
            save({**entries, test: seen})
    elif test in entries:
        hint = "HEADRACE_RECORD=1 pytest -m '' tests/conformance && python scripts/compatibility_page.py"
        assert seen == entries[test], (
            f"the brokers answered otherwise than recorded; if that is right: {hint}"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell the fixtures of a test whether it passed."""
    report = yield
    if report.when == "call":
        item.has_passed = report.passed  # type: ignore[attr-defined]
    return report
