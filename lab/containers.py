"""The containers and networks of a lab: made, started, waited for and removed.

All carry the label `headrace.lab`, whose value is the inventory: by it they are found again, and nothing else is ever removed.
No container is privileged. SYS_ADMIN is what systemd needs to give units their sandboxes: without it they run with none, unsaid.
"""

from __future__ import annotations

import hashlib
import json
import resource
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from lab.docker import Docker
from lab.errors import LabError
from lab.image import COMMAND
from lab.topology import Host, Network, Topology

LABEL: Final = "headrace.lab"
SPECIFICATION_LABEL: Final = "headrace.lab.host"
WORKERS: Final = 4
UP_TIMEOUT_S: Final = 120
POLL_INTERVAL_S: Final = 0.2
INSTANCES_MAX: Final = Path("/proc/sys/fs/inotify/max_user_instances")
INSTANCES_A_HOST: Final = 5
"""What systemd, its journal, its logins and D-Bus watch files with; without one a unit of theirs fails."""
INSTANCES_OF_OTHERS: Final = 10
FILES_MAX: Final = 1_048_576
"""Open files a process may ask for, where this machine allows as many: units set limits of their own below it."""
FLAGS: Final[tuple[str, ...]] = (
    *("--tmpfs", "/run", "--tmpfs", "/run/lock"),
    # Java unpacks libraries there, and runs them.
    *("--tmpfs", "/tmp:exec"),
    # systemd makes the control groups of its units, below the container's own.
    *("--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw", "--cgroupns", "host"),
    # Sandboxes of units; routes, and the drills at wan.
    *("--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN"),
    *("--log-opt", "max-size=1m"),
    # systemd's own for an orderly halt.
    *("--stop-signal", "SIGRTMIN+3"),
)
# Docker's profile for AppArmor forbids every mount, and with it the sandboxes of units.
APPARMOR_FLAGS: Final[tuple[str, ...]] = ("--security-opt", "apparmor=unconfined")
# What systemd does on a machine by itself. Without it a unit's credentials, which are a mount, stay unseen by its process.
BOOT: Final[tuple[str, ...]] = ("sh", "-c", f"mount --make-rshared / && exec {COMMAND}")
_Result = TypeVar("_Result")


def together(work: Callable[[Any], _Result], items: Iterable[Any]) -> list[_Result]:
    """Do it for all items, a few at a time; the first error is raised when all are done."""
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(work, items))


def inventories(docker: Docker) -> dict[str, str]:
    """Each container of a lab, running or not, with its inventory."""
    lines = docker.run(
        "ps", "--all", "--filter", f"label={LABEL}", "--format", f'{{{{.Names}}}} {{{{.Label "{LABEL}"}}}}'
    )
    return {name: inventory for name, _, inventory in (line.partition(" ") for line in lines.splitlines())}


def networks(docker: Docker) -> list[str]:
    return docker.run("network", "ls", "--filter", f"label={LABEL}", "--format", "{{.Name}}").split()


def start(docker: Docker, topology: Topology, inventory: str, image: str) -> list[str]:
    """Make what is missing and start what does not run; returns the names of the hosts that this started."""
    others = sorted({other for other in inventories(docker).values() if other != inventory})
    if others:
        raise LabError(f"A lab of {others[0]} is there already: run `make lab-down` first.")
    need_watches(len(topology.hosts))
    known = networks(docker)
    for network in topology.networks:
        if network.name not in known:
            make_network(docker, network, inventory)
    flags = (*FLAGS, "--ulimit", f"nofile={open_files()}")
    if "apparmor" in docker.run("info", "--format", "{{.SecurityOptions}}"):
        flags += APPARMOR_FLAGS
    arguments = {host.name: host_arguments(host, flags, image) for host in topology.hosts}
    made = {name: specification for name, specification, _ in states(docker)}
    running = {name for name, _, state in states(docker) if state == "running"}
    for name, specification in made.items():
        if specification != digest(arguments.get(name, [])):
            raise LabError(f"{name} was made by another recipe or inventory: run `make lab-down` first.")
    together(lambda host: make_host(docker, host, arguments[host.name], inventory), absent(topology, made))
    started = [host.name for host in topology.hosts if host.name not in running]
    together(lambda name: docker.run("start", name), started)
    return started


def need_watches(hosts: int) -> None:
    """All containers take their inotify instances from one bound of this machine; raises LabError when it is too low."""
    wanted = INSTANCES_A_HOST * hosts + INSTANCES_OF_OTHERS
    allowed = int(INSTANCES_MAX.read_text(encoding="utf-8"))
    if allowed < wanted:
        raise LabError(
            f"{hosts} hosts take {wanted} inotify instances, and this machine allows {allowed}: "
            f"run sysctl fs.inotify.max_user_instances={wanted}."
        )


def open_files() -> int:
    """A limit that this machine can set: only some may raise a process's own."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)


def absent(topology: Topology, made: dict[str, str]) -> list[Host]:
    return [host for host in topology.hosts if host.name not in made]


def states(docker: Docker) -> list[tuple[str, str, str]]:
    """Name, specification and state of each container of a lab."""
    form = f'{{{{.Names}}}} {{{{.Label "{SPECIFICATION_LABEL}"}}}} {{{{.State}}}}'
    lines = docker.run("ps", "--all", "--filter", f"label={LABEL}", "--format", form).splitlines()
    return [(name, specification, state) for name, specification, state in map(str.split, lines)]


def make_network(docker: Docker, network: Network, inventory: str) -> None:
    docker.run(
        *("network", "create", "--label", f"{LABEL}={inventory}"),
        *("--subnet", str(network.subnet), "--gateway", str(network.gateway)),
        # Hosts of the lab have no business outside it.
        *("--opt", "com.docker.network.bridge.enable_ip_masquerade=false"),
        network.name,
    )


def host_arguments(host: Host, flags: Iterable[str], image: str) -> list[str]:
    """What `docker create` is told of a host, but for its labels."""
    first, *_ = host.legs
    arguments = ["--name", host.name, "--hostname", host.name, *flags]
    arguments += ["--network", first, "--ip", str(host.legs[first])]
    arguments += ["--env", f"LAB_ROUTES={','.join(host.routes)}"]
    if host.is_router:
        arguments += ["--sysctl", "net.ipv4.ip_forward=1"]
    return [*arguments, image, *BOOT]


def digest(arguments: list[str]) -> str:
    return hashlib.sha256(json.dumps(arguments).encode()).hexdigest()[:16]


def make_host(docker: Docker, host: Host, arguments: list[str], inventory: str) -> None:
    labels = ["--label", f"{LABEL}={inventory}", "--label", f"{SPECIFICATION_LABEL}={digest(arguments)}"]
    docker.run("create", *labels, *arguments)
    for network, address in list(host.legs.items())[1:]:
        docker.run("network", "connect", "--ip", str(address), network, host.name)


def wait_until_up(docker: Docker, names: Iterable[str]) -> None:
    """Until each host has booted with every unit well; raises LabError naming the first that has not."""
    deadline = time.monotonic() + UP_TIMEOUT_S
    together(lambda name: _wait_for_boot(docker, name, deadline), names)


def _wait_for_boot(docker: Docker, name: str, deadline: float) -> None:
    while True:
        said = docker.ask("exec", name, "systemctl", "is-system-running")
        state = said.stdout.strip() or said.stderr.strip()
        if state == "running":
            return
        if state == "degraded":
            failed = docker.run("exec", name, "systemctl", "--failed", "--plain", "--no-legend")
            raise LabError(f"{name} has booted with units that failed: {failed}")
        if time.monotonic() > deadline:
            raise LabError(f"{name} does not boot, its systemd says {state!r}: see `docker logs {name}`.")
        time.sleep(POLL_INTERVAL_S)


def remove_all(docker: Docker) -> int:
    """Remove every container and network of a lab, whatever its inventory; returns how many containers there were."""
    names = list(inventories(docker))
    together(lambda name: docker.run("rm", "--force", "--volumes", name), names)
    for network in networks(docker):
        docker.run("network", "rm", network)
    return len(names)
