"""What a look through a data directory found, kept in it: `headrace check-logs --record` writes it, a broker's metrics tell it.

Apache Kafka passes over the file. Must not know: when somebody looks, and what is wrong with the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from headrace.broker.log.files import Files

_FILE = "scrub-outcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubOutcome:
    """When the last look through a whole directory ended, and the stretches of bad bytes by folders of logs that have some.

    `finished_s` is in seconds since 1970, None before the first such look.
    """

    finished_s: float | None = None
    rotten_places: Mapping[str, int] = field(default_factory=dict)

    def checked(self, folder: str, rotten_places: int) -> ScrubOutcome:
        """The outcome once a log was looked through."""
        others = {name: count for name, count in self.rotten_places.items() if name != folder}
        found = {folder: rotten_places} if rotten_places else {}
        return replace(self, rotten_places=others | found)

    def finished(self, now_s: float, folders: Collection[str]) -> ScrubOutcome:
        """The outcome once the directory was, whose logs were these."""
        left = {name: count for name, count in self.rotten_places.items() if name in folders}
        return replace(self, finished_s=now_s, rotten_places=left)


def read_outcome(files: Files, directory: str) -> ScrubOutcome:
    """What is kept in a data directory; an empty one where nothing is, or nothing that can be understood. Raises OSError."""
    try:
        data = files.read(f"{directory}/{_FILE}")
    except FileNotFoundError:
        return ScrubOutcome()
    try:
        found = json.loads(data)
        return ScrubOutcome(
            finished_s=None if found["finished_s"] is None else float(found["finished_s"]),
            rotten_places={str(name): int(count) for name, count in found["rotten_places"].items()},
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        return ScrubOutcome()


def write_outcome(files: Files, directory: str, outcome: ScrubOutcome) -> None:
    """Keep it in the data directory. Raises OSError."""
    kept = {"finished_s": outcome.finished_s, "rotten_places": outcome.rotten_places}
    files.replace_file(f"{directory}/{_FILE}", json.dumps(kept).encode())
