"""`report.html`."""

from __future__ import annotations

import json
from typing import Any

from headrace.audit.ledger import Ledger


def render(report: dict[str, Any], ledger: Ledger) -> str:
    return f"<!doctype html><pre>{json.dumps(report, indent=1)}</pre>"
