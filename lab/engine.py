"""The Docker engine under the lab: the one that runs, or one of its own where none does.

Invariants of its own one: nothing outside its folders is touched (no firewall rule, no forwarding, no default bridge), since the
lab needs none of it; it is ended by the process id that it wrote, and nothing else is.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lab.docker import Docker
from lab.errors import LabError

RUN: Final = Path("/run/headrace-lab")
"""Close to the root: a socket's path has a limit. inventory/docker/group_vars/all.yml names the socket as well."""
SOCKET: Final = RUN / "engine.sock"
PID_FILE: Final = RUN / "engine.pid"
LOG: Final = RUN / "engine.log"
EXECUTION: Final = RUN / "exec"
CGROUP: Final = "headrace-lab"
CGROUPS: Final = Path("/sys/fs/cgroup")
START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 60
POLL_INTERVAL_S: Final = 0.1


def cache_folder() -> Path:
    """Where what is slow to make outlives the lab, outside the checkout."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "lab"


def data_folder() -> Path:
    return cache_folder() / "engine"


def own() -> Docker:
    return Docker(f"unix://{SOCKET}")


def running() -> Docker | None:
    """The engine that the lab's containers are in, or would be: its own before any other; None where none answers."""
    return next((engine for engine in (own(), Docker()) if engine.answers()), None)


def ensure(say: Callable[[str], None]) -> Docker:
    """An engine that answers, started when there is none."""
    found = running()
    if found is not None:
        if found != own():
            forget_remains()
        return found
    if os.geteuid() != 0:
        raise LabError(
            "No Docker engine answers, and only root may start one: start it, or run this as root."
        )
    if shutil.which("dockerd") is None:
        raise LabError(
            "No Docker engine answers, and there is none to start: install the Debian package docker.io."
        )
    say("Starting a Docker engine of the lab's own")
    start()
    return own()


def start() -> None:
    forget_remains()
    RUN.mkdir(mode=0o700, exist_ok=True)
    data_folder().mkdir(parents=True, exist_ok=True)
    command = [
        "dockerd",
        f"--host=unix://{SOCKET}",
        f"--data-root={data_folder()}",
        f"--exec-root={EXECUTION}",
    ]
    command += [
        f"--pidfile={PID_FILE}",
        f"--cgroup-parent=/{CGROUP}",
        "--exec-opt=native.cgroupdriver=cgroupfs",
    ]
    command += ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
    command += ["--userland-proxy=false", "--log-level=warn"]
    with LOG.open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while not own().answers():
        if process.poll() is not None or time.monotonic() > deadline:
            last = LOG.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
            stop()
            raise LabError("The Docker engine does not start:\n" + "\n".join(last))
        time.sleep(POLL_INTERVAL_S)


def weigh(hosts: int) -> None:
    """Give the lab's hosts the turns of as many processes; otherwise all of them together would get those of one."""
    wanted = dict.fromkeys(CGROUPS.glob(f"cpu*/{CGROUP}/cpu.shares"), 1024 * hosts)
    wanted[CGROUPS / CGROUP / "cpu.weight"] = min(100 * hosts, 10_000)
    for path, weight in wanted.items():
        if path.exists():
            path.write_text(str(weight), encoding="utf-8")


def process_id() -> int | None:
    """The process of the lab's own engine, or None when it does not run."""
    try:
        pid = int(PID_FILE.read_text(encoding="utf-8"))
        name = Path("/proc", str(pid), "comm").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ValueError):
        return None
    return pid if name == "dockerd" else None


def stop() -> None:
    """End the lab's own engine, if it runs, and remove what it leaves outside its cache."""
    pid = process_id()
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while process_id() == pid:
            if time.monotonic() > deadline:
                raise LabError(f"The Docker engine, process {pid}, does not end: end it, and run this again.")
            time.sleep(POLL_INTERVAL_S)
    forget_remains()


def forget_remains() -> None:
    """Remove the folders and control groups of an engine that has ended."""
    if process_id() is not None:
        return
    if RUN.exists():
        for mount in sorted(mounts_below(RUN), reverse=True):
            subprocess.run(["umount", mount], check=False)
        shutil.rmtree(RUN)
    for group in (CGROUPS / CGROUP, *CGROUPS.glob(f"*/{CGROUP}")):
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)


def mounts_below(folder: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")]
