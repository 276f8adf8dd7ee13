"""What the machine is, and the settings a comparison must hold still.

Owns the description that goes beside every raw run and the loopback congestion control during runs. BBR makes loopback
two to four times slower than cubic, so every run says which was in force, and cubic is set for the time of a run where
that is permitted.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
SAMPLE_SECONDS = 0.1


def describe() -> dict[str, str | int]:
    """Processor, cores, memory (MiB), kernel and Python of this machine."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "processor": model,
        "cores": os.cpu_count() or 1,
        "memory_mib": psutil.virtual_memory().total // 2**20,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


@contextlib.contextmanager
def congestion_control(wanted: str = "cubic") -> Iterator[str]:
    """Set the congestion control for new sockets, yield the one in force, and put the old one back."""
    before = CONGESTION_CONTROL.read_text().strip()
    with contextlib.suppress(OSError):
        CONGESTION_CONTROL.write_text(wanted)
    try:
        yield CONGESTION_CONTROL.read_text().strip()
    finally:
        with contextlib.suppress(OSError):
            CONGESTION_CONTROL.write_text(before)


def cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds (user and system) of a process and the children it still has or has waited for."""
    times = process.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            total += cpu_seconds(child)
    return float(total)


def running_seconds(process: psutil.Process) -> float:
    """CPU seconds of a process's threads to the nanosecond, for one that does next to nothing."""
    return sum(int(file.read_text().split()[0]) for file in _of_threads(process, "schedstat")) / 1e9


def wake_ups(process: psutil.Process) -> int:
    """How often the threads of a process waited for something, and went on."""
    lines = (line for file in _of_threads(process, "status") for line in file.read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def _of_threads(process: psutil.Process, file: str) -> list[Path]:
    return list(Path(f"/proc/{process.pid}/task").glob(f"*/{file}"))


class ProcessTree:
    """CPU and memory of a process and all its descendants, also of those that end or lose their parent meanwhile."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known: dict[psutil.Process, float] = {}
        self.memory_mib_max = 0

    @property
    def cpu_seconds(self) -> float:
        """User and system seconds of every process seen so far, as of the last look at it."""
        return sum(self._known.values())

    def watch(self, child: subprocess.Popen[str]) -> str:
        """Look again and again until the child ends; return its standard output, which must be short."""
        while True:
            self.look()
            try:
                return child.communicate(timeout=SAMPLE_SECONDS)[0]
            except subprocess.TimeoutExpired:
                continue

    def look(self) -> None:
        """Take the figures of every process that is there now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (self._root, *self._root.children(recursive=True)):
                self._known.setdefault(process, 0.0)
        memory = 0
        for process in self._known:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._known[process] = times.user + times.system
                memory += process.memory_info().rss
        self.memory_mib_max = max(self.memory_mib_max, memory // 2**20)
