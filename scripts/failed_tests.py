"""Prints the tests that failed in the last run of pytest here, one a line."""

from __future__ import annotations

import json
from pathlib import Path

FAILED = Path(__file__).resolve().parents[1] / ".pytest_cache" / "v" / "cache" / "lastfailed"


def main() -> None:
    failed = json.loads(FAILED.read_text(encoding="utf-8")) if FAILED.exists() else {}
    print("".join(f"{name}\n" for name in sorted(failed)), end="")


if __name__ == "__main__":
    main()
