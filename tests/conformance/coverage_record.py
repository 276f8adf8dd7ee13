"""What each session provoked in both brokers: versions and error codes by API key, recorded and never typed.

`coverage.jsonl` has a line for each test. A test whose line says anything else than what the brokers answered fails;
`HEADRACE_RECORD=1 pytest tests/conformance` writes the lines of the tests that ran anew, then
`python scripts/compatibility_page.py` makes the page.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).with_name("coverage.jsonl")
Entry = dict[str, dict[str, list[int]]]


class Covered(NamedTuple):
    """What the sessions of one API key saw in both brokers."""

    versions: set[int]
    codes: set[int]
    sessions: set[str]


def load() -> dict[str, Entry]:
    """By test: API key → versions and codes."""
    lines = PAGE.read_text().splitlines() if PAGE.exists() else []
    return {record["test"]: record["keys"] for record in map(json.loads, lines)}


def save(entries: dict[str, Entry]) -> None:
    PAGE.write_text("".join(f"{_line(test, entries[test])}\n" for test in sorted(entries)))


def _line(test: str, keys: Entry) -> str:
    return json.dumps({"test": test, "keys": keys}, separators=(",", ":"), sort_keys=True)


def entry_of(seen: dict[int, dict[str, set[int]]]) -> Entry:
    """As a line has it."""
    return {str(key): {name: sorted(values) for name, values in each.items()} for key, each in seen.items()}


def by_key(entries: dict[str, Any]) -> dict[int, Covered]:
    """The same by API key; a session is a test function, whatever its parameters."""
    found: dict[int, Covered] = defaultdict(lambda: Covered(set(), set(), set()))
    for test, keys in entries.items():
        for key, each in keys.items():
            covered = found[int(key)]
            covered.versions.update(each["versions"])
            covered.codes.update(each["codes"])
            covered.sessions.add(test.partition("[")[0])
    return found
