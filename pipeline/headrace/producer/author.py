"""Whose monitoring events they are: the names that a life's accounts bear, and how these become messages."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from headrace.events.envelope import Header
from headrace.events.monitoring import Account, MonitoringEvent, ProcessName
from headrace.producer.spool_layout import Head
from headrace.producer.stream import Encoder

_IMPORTED_MS: Final = time.time_ns() // 1_000_000
_START_FIELD: Final = 19
"""Of /proc/PID/stat behind the command's name, which may hold anything: clock ticks since the host started."""


@dataclass(slots=True)
class Author:
    """One producer's life as its accounts name it."""

    producer: str
    server: str
    service: str
    datacenter: str
    process: ProcessName
    sequence: int = 0
    """Of the next monitoring event."""

    @classmethod
    def of(cls, head: Head, sequence: int) -> Author:
        """Return that of a life whose process is gone."""
        return cls(head.producer, head.server, head.service, head.datacenter, head.process, sequence)

    def message(self, encoder: Encoder, topic: str, account: Account, now_ms: int) -> dict[str, Any]:
        """Return value and timestamp of an account's message."""
        header = Header(now_ms, self.server, self.service, self.producer, self.sequence)
        event = MonitoringEvent(
            header=header, topic=topic, datacenter=self.datacenter, account=account, process=self.process
        )
        return {"value": encoder.encode(event.as_record()), "timestamp": now_ms}


def this_process() -> ProcessName:
    """Return the names of the process that this runs in."""
    return _process(os.getpid())


@cache
def _process(pid: int) -> ProcessName:
    return ProcessName(os.uname().nodename, pid, _started_ms())


def _started_ms() -> int:
    """Return when this process was started; where the system does not say, when this module was."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_START_FIELD])
        lines = Path("/proc/stat").read_text().splitlines()
        booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return _IMPORTED_MS
    return round((booted + ticks / os.sysconf("SC_CLK_TCK")) * 1000)
