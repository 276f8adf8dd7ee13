"""docs/configuration.md says what the broker's definitions say."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_made_from_the_definitions_of_today() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "configuration_page.py"))
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert script["render"](page) == page, "run python scripts/configuration_page.py"
    assert "`log.segment.bytes`" in page
