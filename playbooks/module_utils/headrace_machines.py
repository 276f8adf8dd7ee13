"""What a machine is like: memory, room on disk, limits, versions of programs, its clock, and who listens where.

Each question is answered in a sentence about what is wrong, or in None; only the standard library is needed, in Python 3.9.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ansible.module_utils import headrace_packages as packages

JAVA_VERSION_MIN = 17
PYTHON_VERSION_MIN = (3, 11)
# Half of how far two clocks may be apart: each is within so much of the true time.
CLOCK_ERROR_MS_MAX = 250
TIME_ERROR = 5
CAP_SYS_RESOURCE = 24
# Debian keeps haproxy where only root's PATH looks.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
CGROUP_MEMORY = "/sys/fs/cgroup/memory.max"
# Looks into itself for what a release's virtual environment is made with.
ABOUT_PYTHON = "import sys; print(*sys.version_info[:2]); import ensurepip, venv"


def name() -> str:
    return socket.gethostname()


def program_problem(program: str) -> str | None:
    if shutil.which(program, path=SEARCH_PATH) is not None:
        return None
    return f"The program {program} is not installed on {name()}: {packages.advice(program)}."


def java_problem() -> str | None:
    """Told by `java -version`: 17 and later serve ZooKeeper and Spark."""
    said = run([shutil.which("java", path=SEARCH_PATH) or "java", "-version"])
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        return f"`java -version` does not tell its version on {name()}: it says {said.strip()[:200]!r}."
    version = int(found.group(1))
    if version >= JAVA_VERSION_MIN:
        return None
    return f"Java on {name()} is version {version}: ZooKeeper and Spark need {JAVA_VERSION_MIN} or later."


def python_problem(program: str, wanted: dict[str, str], *, installs: bool) -> str | None:
    """Whether a release's virtual environment can be made with it, once the packages that may be installed are."""
    path = shutil.which(program, path=SEARCH_PATH)
    least = ".".join(map(str, PYTHON_VERSION_MIN))
    needed = f"a release needs Python {least} or later"
    if path is None:
        return (
            None
            if installs
            else f"release_python is {program}, which is not installed on {name()}: {needed}."
        )
    said = run([path, "-c", ABOUT_PYTHON])
    found = re.match(r"(\d+) (\d+)\n", said)
    version = ".".join(found.groups()) if found else "unknown"
    told = f"release_python, {program} on {name()}, is version {version}"
    if found is None or (int(found[1]), int(found[2])) < PYTHON_VERSION_MIN:
        return f"{told}: {needed}. {packages.python_advice(installs=installs)}"
    if wanted and (version, platform.machine()) != (wanted["version"], wanted["machine"]):
        return (
            f"{told} on {platform.machine()}, and the release is for {wanted['version']} on {wanted['machine']}: name another in "
            "release_python, or make the release where these are the same."
        )
    if "ModuleNotFoundError" in said and not installs:
        return f"release_python, {program} on {name()}, makes no virtual environments: {packages.advice('python')}."
    return None


def run(command: list[str]) -> str:
    """What a program says, on both of its outputs."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        return str(error)
    return result.stdout + result.stderr


def memory_problem(needed_mb: int) -> str | None:
    found_mb = memory_mb()
    if found_mb >= needed_mb:
        return None
    return f"{name()} has {found_mb} MB of memory, and its services need {needed_mb} MB: give it more, or fewer services."


def memory_mb() -> int:
    """All that the machine has, or that its container may use."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open(CGROUP_MEMORY, encoding="ascii") as file:
            limit = file.read().strip()
    except OSError:
        limit = "max"
    return min(whole, int(limit) if limit.isdigit() else whole) >> 20


def disk_problems(needed_mb: Mapping[str, int]) -> list[str]:
    """A sentence for each disk that is read-only, or has less free than all the folders need that are, or will be, on it."""
    disks: dict[int, list[str]] = {}
    for folder in needed_mb:
        disks.setdefault(os.stat(existing(folder)).st_dev, []).append(folder)
    found = []
    for folders in disks.values():
        if is_read_only(folders[0]):
            found.append(
                f"The disk of {', '.join(folders)} on {name()} is mounted read-only: look in the kernel's log why, and mount it "
                "for writing, or set headrace_data_dir."
            )
            continue
        free_mb = shutil.disk_usage(existing(folders[0])).free >> 20
        wanted_mb = sum(needed_mb[folder] for folder in folders)
        if free_mb < wanted_mb:
            found.append(
                f"The disk of {', '.join(folders)} on {name()} has {free_mb} MB free, and its services need {wanted_mb} MB: "
                "make room, or set headrace_data_dir."
            )
    return found


def is_read_only(folder: str) -> bool:
    return bool(os.statvfs(existing(folder)).f_flag & os.ST_RDONLY)


def existing(folder: str) -> str:
    """The folder, or what is there already of the path to it."""
    place = os.path.abspath(folder)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    return place


def open_files_max(manager: str) -> int:
    """How many open files the service manager may allow a service."""
    if manager == "supervisor":
        return resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with open("/proc/1/status", encoding="ascii") as file:
        capabilities = int(re.search(r"^CapEff:\s*(\w+)", file.read(), re.MULTILINE)[1], 16)  # type: ignore[index]
    if capabilities >> CAP_SYS_RESOURCE & 1:
        with open("/proc/sys/fs/nr_open", encoding="ascii") as file:
            return int(file.read())
    with open("/proc/1/limits", encoding="ascii") as file:
        return int(re.search(r"^Max open files\s+\d+\s+(\d+)", file.read(), re.MULTILINE)[1])  # type: ignore[index]


def open_files_problem(need: dict[str, Any], limit: int) -> str | None:
    if need["count"] <= limit:
        return None
    return f"{need['service']} needs {need['count']} open files, and {name()} allows it {limit}: {need['advice']}."


def jars_problem(folder: str) -> str | None:
    advice = "leave it out to use the release's jars"
    if not os.path.isdir(folder):
        return f"zookeeper_jars_dir is {folder}, and {name()} has no such folder: {advice}."
    if any(re.match(r"zookeeper-\d.*\.jar$|zookeeper\.jar$", entry) for entry in os.listdir(folder)):
        return None
    return f"zookeeper_jars_dir is {folder}, and there is no zookeeper-*.jar in it on {name()}: {advice}."


class _Timex(ctypes.Structure):
    """The beginning of adjtimex(2)'s structure, and room for the rest."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    ]


def clock_problem() -> str | None:
    """What the kernel says of its clock; a container has its machine's, and nothing to set it by."""
    if any(map(os.path.exists, ("/run/systemd/container", "/.dockerenv", "/run/.containerenv"))):
        return None
    found = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(found))
    return told_of_clock(state, found.maxerror // 1000)


def told_of_clock(state: int, error_ms: int) -> str | None:
    advice = f"have chrony keep it, to {CLOCK_ERROR_MS_MAX} ms ({packages.advice('clock')}; chronyc tracking)"
    if state in (-1, TIME_ERROR):
        return f"The clock of {name()} is not synchronised: {advice}."
    if error_ms > CLOCK_ERROR_MS_MAX:
        return f"The clock of {name()} may be {error_ms} ms off: {advice}."
    return None


def listening(pid: int) -> set[str]:
    """The inodes of the sockets that a process holds; none of a process that is not one's own."""
    folder = f"/proc/{pid}/fd"
    found: set[str] = set()
    try:
        entries = os.listdir(folder)
    except OSError:
        return found
    for entry in entries:
        # What is closed meanwhile is none that it listens to.
        with suppress(OSError):
            target = os.readlink(f"{folder}/{entry}")
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def inodes_at(address: str, port: int) -> set[str]:
    """The listening sockets at that address and port, or at all addresses and that port."""
    found = set()
    # Java listens to IPv4 as well by a socket of IPv6, at the mapped address.
    own = [address] if ":" in address else [address, f"::ffff:{address}"]
    places = {place_text(each, port) for each in (*own, "0.0.0.0", "::")}
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(file, encoding="ascii") as table:
                rows = [line.split() for line in table.readlines()[1:]]
        except OSError:
            continue
        found |= {row[9] for row in rows if row[3] == "0A" and row[1] in places}
    return found


def place_text(address: str, port: int) -> str:
    """As /proc/net/tcp has it: words of four bytes, each in this machine's order."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    octets = socket.inet_pton(family, address)
    words = (octets[at : at + 4][::-1] for at in range(0, len(octets), 4))
    return b"".join(words).hex().upper() + f":{port:04X}"


def holder(inodes: set[str]) -> int:
    """A process that holds one of these sockets, or 0 where none can be seen."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and listening(int(entry)) & inodes:
            return int(entry)
    return 0


def listener_problem(service: str, address: str, port: int, pid: int) -> str | None:
    """A sentence when the service could not listen there now, and its own process, if it has one, does not."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return f"{service} cannot listen at {address}:{port}: {error.strerror}. Stop it or change the inventory."
        else:
            return None
    inodes = inodes_at(address, port)
    if pid and listening(pid) & inodes:
        return None
    other = holder(inodes)
    # What the first process of a service has started serves for it.
    if pid and other and parent_of(other) == pid:
        return None
    # Of a holder that cannot be seen nothing is known; the roll-out asks the service that runs whether it serves there.
    if pid and not other:
        return None
    who = f"process {other} ({command_of(other)})" if other else "something else"
    return (
        f"{service} cannot listen at {address}:{port}: {who} listens there. Stop it or change the inventory."
    )


def parent_of(pid: int) -> int:
    """The process that started it; 0 when it is gone by now."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "gone by now"
