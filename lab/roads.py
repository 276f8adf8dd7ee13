"""The roads between datacenters, at the host `wan`: cut, slowed and mended.

Cut drops every packet without an answer, as a broken line does. Slow lets so many bits a second through, in each direction.
"""

from __future__ import annotations

from typing import Final

from lab.docker import Docker
from lab.errors import LabError
from lab.topology import ROUTER, Network

TABLE: Final = "headrace_lab"
QUEUE_MS: Final = 400
BURST: Final = "32kb"


def _router(docker: Docker, *command: str) -> str:
    return docker.run("exec", ROUTER, *command)


def leg(docker: Docker, network: Network) -> str:
    """The interface of `wan` in that network."""
    for line in _router(docker, "ip", "-brief", "-4", "address").splitlines():
        name, _, *addresses = line.split()
        if any(address.split("/")[0] == str(network.router) for address in addresses):
            return name.partition("@")[0]
    raise LabError(f"{ROUTER} has no leg in {network.datacenter}: run `make lab-down` and `make lab`.")


def cut(docker: Docker, network: Network) -> None:
    """Let nothing more pass between that datacenter and the others, from and to it."""
    ways = "".join(
        f"add rule inet {TABLE} forward ip {end} {network.subnet} drop\n" for end in ("saddr", "daddr")
    )
    rules = f"add table inet {TABLE}\nadd chain inet {TABLE} forward {{ type filter hook forward priority 0; }}\n{ways}"
    _router(docker, "nft", rules)


def slow(docker: Docker, network: Network, kilobits: int) -> None:
    """Let at most so many kilobits a second pass from the others to that datacenter."""
    shape = ["root", "tbf", "rate", f"{kilobits}kbit", "burst", BURST, "latency", f"{QUEUE_MS}ms"]
    _router(docker, "tc", "qdisc", "replace", "dev", leg(docker, network), *shape)


def mend(docker: Docker, networks: tuple[Network, ...]) -> None:
    """Make all roads whole again."""
    if TABLE in _router(docker, "nft", "list", "tables"):
        _router(docker, "nft", "delete", "table", "inet", TABLE)
    for network in networks:
        interface = leg(docker, network)
        if " tbf " in _router(docker, "tc", "qdisc", "show", "dev", interface):
            _router(docker, "tc", "qdisc", "del", "dev", interface, "root")
