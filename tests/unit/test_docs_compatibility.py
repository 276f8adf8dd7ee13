"""docs/compatibility.md says what the handlers say."""

from __future__ import annotations

import runpy
from pathlib import Path

from headrace.broker.handlers.table import HANDLERS
from headrace.broker.wire.api import APIS

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "compatibility_page.py"))


def test_the_page_is_made_from_the_handlers_of_today() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    assert SCRIPT["render"](page) == page, "run python scripts/compatibility_page.py"


def test_a_key_is_served_or_has_a_reason() -> None:
    assert SCRIPT["NOT_SERVED"].keys() == APIS.keys() - HANDLERS.keys()


def test_no_version_is_served_that_apache_kafka_does_not_have() -> None:
    for handler in HANDLERS.values():
        first, last = APIS[handler.key].versions
        assert first <= handler.version_min <= handler.version_max <= last


def test_a_handlers_deviations_end_with_their_paragraph() -> None:
    text = "Fetch.\n\nAll of it. Deviations: one\nthing and\nanother.\n\nMore.\n"
    assert SCRIPT["deviations"](text) == "One thing and another."
    assert SCRIPT["deviations"]("Heartbeat. No deviations.") == ""
