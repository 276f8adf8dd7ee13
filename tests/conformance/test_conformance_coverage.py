"""Every served API key has sessions in every version, and every error code that Kafka documents for it is seen or explained."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from coverage_record import by_key, load
from documented_errors import DOCUMENTED, unprovoked

from headrace.broker.handlers.table import HANDLERS
from headrace.broker.wire.api import APIS

COVERED = by_key(load())
NAMES = {key: f"{key}-{APIS[key].name}" for key in HANDLERS}


@pytest.mark.parametrize("key", HANDLERS, ids=NAMES.values())
def test_every_version_was_answered_alike(key: int) -> None:
    handler = HANDLERS[key]
    assert COVERED[key].versions >= set(range(handler.version_min, handler.version_max + 1))


@pytest.mark.parametrize("key", HANDLERS, ids=NAMES.values())
def test_every_documented_error_was_seen_or_has_a_reason(key: int) -> None:
    assert key in DOCUMENTED
    missing = [code.name for code, why in unprovoked(key, COVERED[key].codes).items() if why is None]
    assert not missing, "write a session that provokes it"


def test_recorded_sessions_exist() -> None:
    folder = Path(__file__).parent
    for test in load():
        module, _, name = test.partition("::")
        tree = ast.parse((folder / f"{module}.py").read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in functions, f"{test} is gone: take its line out of coverage.jsonl"
