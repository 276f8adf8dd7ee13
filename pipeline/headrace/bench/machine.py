"""What the machine is, and the settings a comparison must hold still.

Owns the description that goes beside every raw run and the loopback congestion control during runs. BBR makes loopback
two to four times slower than cubic, so every run says which was in force, and cubic is set for the time of a run where
that is permitted.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import psutil

CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")


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
