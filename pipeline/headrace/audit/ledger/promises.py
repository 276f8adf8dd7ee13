"""The watermarks that were told, as a file beside the ledger: they never go back, whatever becomes of the ledger.

A watermark is written before it is told. Several processes may tell watermarks from one folder at a time; of each topic
the latest stays, with how far its live log was counted by then, so that what comes later can be named late.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.audit.ledger.ledger import Promise

FILE: Final = "watermarks.json"
LOCK: Final = ".watermarks.lock"
VERSION: Final = 1

Promises = dict[tuple[str, str], Promise]


def load(directory: Path) -> Promises:
    """Return what was told; nothing where there is no file, or none that is readable."""
    try:
        fields = json.loads((directory / FILE).read_text(encoding="utf-8"))
        if fields["version"] != VERSION:
            return {}
        return {
            (datacenter, topic): Promise(int(until_ms), {int(at): int(offset) for at, offset in positions})
            for datacenter, topic, until_ms, positions in fields["watermarks"]
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def keep(directory: Path, promised: Mapping[tuple[str, str], Promise]) -> Promises:
    """Write what is going to be told, and return it: of each topic the latest that anybody told.

    Raises:
        OSError: the folder cannot be written, so that nothing new may be told.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = load(directory)
        latest = {
            key: max(
                (item[key] for item in (known, promised) if key in item), key=lambda found: found.until_ms
            )
            for key in known.keys() | promised.keys()
        }
        if latest != known:
            _replace(directory, latest)
    return latest


def _replace(directory: Path, promised: Promises) -> None:
    temporary = directory / f"{FILE}.{os.getpid()}.new"
    watermarks = [
        [*key, promise.until_ms, sorted(promise.positions.items())]
        for key, promise in sorted(promised.items())
    ]
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({"version": VERSION, "watermarks": watermarks}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / FILE)
