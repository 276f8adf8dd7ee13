#!/usr/bin/python
"""Collects what helps to understand a host: configuration, journals, metrics, versions, what the system says; changes nothing.

Invariants: no file that others may not read is taken, nor any key; everything is redacted here, before it leaves the host, by
rule and by the values that such files hold; what is collected has a bound in bytes and in time; what could not be had is told.
"""

from __future__ import annotations

import base64
import glob
import http.client
import json
import os
import stat
import subprocess
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.headrace_health import unverified
from ansible.module_utils.headrace_managers import Supervisor, Systemd
from ansible.module_utils.headrace_redaction import redacted, values_of

DOCUMENTATION = r"""
module: headrace_support
short_description: Collect what helps to understand a host
options:
  services: {description: The names of the host's services., type: list, elements: str, default: []}
  manager: {description: Who keeps the processes., type: str, required: true, choices: [supervisor, systemd]}
  socket: {description: Path of supervisor's socket., type: path}
  config: {description: Folders and files of configuration., type: list, elements: path, default: []}
  log_dir: {description: Where supervisor's programs log., type: path}
  data_dir: {description: "The folder of data, of which only names and sizes are taken.", type: path}
  release_home: {description: Where releases are installed., type: path}
  pages: {description: "Addresses of the services' metrics, by their names.", type: dict, default: {}}
  since: {description: "From when on journals are taken, as journalctl understands it.", type: str, default: "-2h"}
  bytes_max: {description: How much text is taken at most., type: int, default: 20000000}
  seconds_max: {description: How long it may take., type: int, default: 60}
author: The headrace contributors
"""

EXAMPLES = r"""
- name: Collect
  headrace_support:
    manager: systemd
    services: [headrace-broker-1]
    config: [/etc/headrace]
    since: -1h
"""

RETURN = r"""
payload:
  description: The files by their names and what is missing, as JSON, compressed and in base64.
  type: str
  returned: always
"""

FILE_BYTES_MAX = 256 << 10
LOG_BYTES_MAX = 1 << 20
ENTRIES_MAX = 2000
COMMAND_S_MAX = 15
PAGE_S_MAX = 5
KEY_SUFFIXES = (".key", ".pem", ".p12", ".pfx", ".jks", ".keystore", ".secret")
# Each by its name in the bundle. Command lines of other programs are not asked for.
SYSTEM_COMMANDS = {
    "kernel": ["uname", "-a"],
    "up": ["uptime"],
    "disks": ["df", "-hT"],
    "inodes": ["df", "-i"],
    "processes": ["ps", "-eo", "pid,ppid,user,stat,rss,etimes,time,comm"],
    "addresses": ["ip", "-brief", "address"],
    "routes": ["ip", "route"],
    "sockets": ["ss", "-s"],
    "clock": ["chronyc", "-n", "tracking"],
    "java": ["java", "-version"],
    "haproxy": ["haproxy", "-v"],
    "python": ["python3", "--version"],
}
SYSTEMD_COMMANDS = {
    "units": ["systemctl", "list-units", "--all", "--no-pager", "headrace-*"],
    "failed-units": ["systemctl", "list-units", "--failed", "--no-pager"],
}
SYSTEM_FILES = (
    "/etc/os-release",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/mounts",
    "/proc/pressure/io",
    "/proc/pressure/memory",
)
# What a host need not have.
OPTIONAL = frozenset({"clock", "java", "haproxy", "/proc/pressure/io", "/proc/pressure/memory"})


class Collection:
    """Texts by their names, redacted, within bounds; and a sentence for each that could not be had."""

    def __init__(self, arguments: dict[str, Any], now: Callable[[], float] = time.monotonic) -> None:
        self.files: dict[str, str] = {}
        self.missing: list[str] = []
        self.secrets: set[str] = set()
        self._bytes_left = arguments["bytes_max"]
        self._deadline, self._now = now() + arguments["seconds_max"], now

    def add(self, name: str, take: Callable[[], str]) -> None:
        if self._now() >= self._deadline:
            self.missing.append(f"{name}: there was no time left")
            return
        try:
            text = redacted(take(), self.secrets)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            self.missing.append(f"{name}: {getattr(error, 'strerror', None) or error}")
            return
        size = len(text.encode(errors="replace"))
        if size > self._bytes_left:
            self.missing.append(f"{name}: there was no room left")
            return
        self._bytes_left -= size
        self.files[name] = text

    def payload(self) -> str:
        told = json.dumps({"files": self.files, "missing": self.missing})
        return base64.b64encode(zlib.compress(told.encode(errors="replace"))).decode()


def said(command: list[str]) -> str:
    """What a command prints, on both of its outputs."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=COMMAND_S_MAX,
        check=False,
        env={
            **os.environ,
            "LC_ALL": "C.UTF-8",
            "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin",
        },
    )
    return done.stdout[-LOG_BYTES_MAX:].decode(errors="replace")


def end_of(path: str, size_max: int) -> str:
    """The file's last bytes, from the beginning of a line on."""
    with open(path, "rb") as file:
        # Files of /proc have no size to count back from.
        size = os.fstat(file.fileno()).st_size
        if size > size_max:
            file.seek(size - size_max)
            file.readline()
        return file.read(size_max).decode(errors="replace")


def regular_files(places: list[str]) -> Iterator[str]:
    for place in places:
        if os.path.isfile(place):
            yield place
        for folder, _, names in os.walk(place):
            yield from (os.path.join(folder, name) for name in sorted(names))


def may_be_taken(path: str) -> bool:
    """Whether everybody on the host may read it, and it is no key."""
    found = os.lstat(path)
    return (
        stat.S_ISREG(found.st_mode) and bool(found.st_mode & stat.S_IROTH) and not path.endswith(KEY_SUFFIXES)
    )


def collect_configuration(collection: Collection, places: list[str]) -> None:
    """Secret files first: what they hold is looked for in everything else."""
    paths = list(regular_files(places))
    kept_back = [path for path in paths if not may_be_taken(path)]
    for path in kept_back:
        try:
            collection.secrets |= values_of(end_of(path, FILE_BYTES_MAX))
        except OSError:
            continue
    collection.add("not-taken", lambda: "".join(f"{mode_of(path)} {path}\n" for path in kept_back))
    for path in paths:
        if path not in kept_back:
            collection.add(f"files{path}", partial(end_of, path, FILE_BYTES_MAX))


def mode_of(path: str) -> str:
    return stat.filemode(os.lstat(path).st_mode)


def collect_services(collection: Collection, asked: dict[str, Any]) -> None:
    for name in asked["services"]:
        if asked["manager"] == "systemd":
            journal = [
                "journalctl",
                f"--unit={name}",
                f"--since={asked['since']}",
                "--no-pager",
                "--output=short-iso-precise",
            ]
            collection.add(f"logs/{name}", partial(said, [*journal, "--lines=20000"]))
            collection.add(
                f"states/{name}",
                partial(said, ["systemctl", "status", "--no-pager", "--lines=0", name]),
            )
            manager: Any = Systemd(name)
        else:
            log = os.path.join(asked["log_dir"] or "", f"{name}.log")
            collection.add(f"logs/{name}", partial(end_of, log, LOG_BYTES_MAX))
            manager = Supervisor(name, asked["socket"] or "")
        if manager.state() == "running":
            pid = manager.process_id()
            for page in ("status", "limits"):
                collection.add(
                    f"states/{name}.{page}",
                    partial(end_of, f"/proc/{pid}/{page}", FILE_BYTES_MAX),
                )


def page(url: str) -> str:
    """What a service of this host says of itself, whatever proxy the environment names."""
    secured = urllib.request.HTTPSHandler(context=unverified())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), secured)
    try:
        with opener.open(url, timeout=PAGE_S_MAX) as answer:
            return bytes(answer.read(LOG_BYTES_MAX)).decode(errors="replace")
    except http.client.HTTPException as error:
        raise ValueError(f"no answer of a web server ({type(error).__name__})") from error


def collect_pages(collection: Collection, pages: dict[str, str]) -> None:
    for name, url in pages.items():
        collection.add(f"metrics/{name}", partial(page, url))


def collect_system(collection: Collection, asked: dict[str, Any]) -> None:
    commands = {**SYSTEM_COMMANDS, **(SYSTEMD_COMMANDS if asked["manager"] == "systemd" else {})}
    for name, command in commands.items():
        if name in OPTIONAL and not on_path(command[0]):
            continue
        collection.add(f"system/{name}", partial(said, command))
    for path in SYSTEM_FILES:
        if path not in OPTIONAL or os.path.exists(path):
            collection.add(f"system{path}", partial(end_of, path, FILE_BYTES_MAX))
    collection.add("system/kernel-messages", lambda: kernel_messages(asked))
    home = asked["release_home"]
    if home:
        collection.add("releases", lambda: installed(home))
    if asked["data_dir"]:
        collection.add("data", lambda: listing(asked["data_dir"]))


def installed(home: str) -> str:
    """The releases of a host, and which one `current` names."""
    pattern = os.path.join(glob.escape(home), "releases", "*")
    current = os.path.join(home, "current")
    named = os.readlink(current) if os.path.islink(current) else "nothing"
    return "".join(f"{path}\n" for path in sorted(glob.glob(pattern))) + f"current names {named}\n"


def on_path(program: str) -> bool:
    return any(
        os.access(os.path.join(folder, program), os.X_OK)
        for folder in [*os.environ.get("PATH", "").split(":"), "/usr/sbin"]
    )


def kernel_messages(asked: dict[str, Any]) -> str:
    command = ["dmesg", "--time-format", "iso"]
    if asked["manager"] == "systemd":
        command = ["journalctl", "--dmesg", f"--since={asked['since']}", "--no-pager", "--lines=2000"]
    done = subprocess.run(command, capture_output=True, timeout=COMMAND_S_MAX, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.decode(errors="replace").strip() or "not allowed")
    return done.stdout[-LOG_BYTES_MAX:].decode(errors="replace")


def listing(folder: str) -> str:
    """Names and sizes of what is in a folder and in its folders, and of nothing deeper than a partition's log."""
    lines = []
    for path, folders, names in os.walk(folder):
        if os.path.relpath(path, folder).count(os.sep) >= 2:
            folders.clear()
        for name in sorted(names):
            place = os.path.join(path, name)
            if os.path.lexists(place):
                lines.append(f"{os.lstat(place).st_size:>14} {place}\n")
        if len(lines) > ENTRIES_MAX:
            lines.append("and more\n")
            break
    return "".join(lines[: ENTRIES_MAX + 1])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "services": {"type": "list", "elements": "str", "default": []},
            "manager": {"type": "str", "required": True, "choices": ["supervisor", "systemd"]},
            "socket": {"type": "path"},
            "config": {"type": "list", "elements": "path", "default": []},
            "log_dir": {"type": "path"},
            "data_dir": {"type": "path"},
            "release_home": {"type": "path"},
            "pages": {"type": "dict", "default": {}},
            "since": {"type": "str", "default": "-2h"},
            "bytes_max": {"type": "int", "default": 20_000_000},
            "seconds_max": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    collection = Collection(module.params)
    collect_configuration(collection, module.params["config"])
    collect_services(collection, module.params)
    collect_pages(collection, module.params["pages"])
    collect_system(collection, module.params)
    module.exit_json(changed=False, payload=collection.payload())


if __name__ == "__main__":
    main()
