"""Prints the tests that failed in the last run of pytest here, one a line, as pytest takes them."""

from __future__ import annotations

import json
import re
from pathlib import Path

FAILED = Path(__file__).resolve().parents[1] / ".pytest_cache" / "v" / "cache" / "lastfailed"


def plain(name: str) -> str:
    """A test's name without the group that pytest-xdist appends: `…::test_x[a]@group`."""
    return re.sub(r"(?<=[\w\]])@\w+$", "", name)


def main() -> None:
    failed = json.loads(FAILED.read_text(encoding="utf-8")) if FAILED.exists() else {}
    print("".join(f"{name}\n" for name in sorted(map(plain, failed))), end="")


if __name__ == "__main__":
    main()
