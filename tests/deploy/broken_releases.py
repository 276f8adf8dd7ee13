"""Releases that are broken on purpose, for upgrades that have to go back: each an edit of a copy of the checkout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """An edit that breaks a release, and what an upgrade to it has to say."""

    path: str
    before: str
    after: str
    said: str

    def put_into(self, checkout: Path) -> None:
        """Break the release that is built from that checkout."""
        file = checkout / self.path
        text = file.read_text(encoding="utf-8")
        assert text.count(self.before) == 1, self.path
        file.write_text(text.replace(self.before, self.after), encoding="utf-8")


FAULTS = {
    "does not start": Fault(
        "broker/headrace/broker/command.py",
        "    config, unknown_keys = checked(read_properties(path))\n",
        '    raise SystemExit("no storage engine in this release")\n',
        "no storage engine in this release",
    ),
    "never catches up": Fault(
        "broker/headrace/broker/server/replicas/fetcher.py",
        '        """Fetch for ever; ends by cancellation."""\n        while True:\n',
        '        """Fetch for ever; ends by cancellation."""\n        while True:\n            await asyncio.sleep(3600)\n',
        "Partitions with replicas out of sync",
    ),
    "answers slowly": Fault(
        "broker/headrace/broker/log/appender.py",
        "        log = self._log\n        config, segments = log.config, log.body.segments\n",
        "        __import__('time').sleep(0.4)\n"
        "        log = self._log\n        config, segments = log.config, log.body.segments\n",
        "too slow",
    ),
    "loses a batch": Fault(
        "pipeline/headrace/load/task.py",
        "return pa.concat_tables(tables) if tables",
        "return pa.concat_tables(tables).slice(1) if tables",
        " lost, 0 doubled",
    ),
}
