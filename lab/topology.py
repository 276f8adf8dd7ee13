"""Which containers and networks an inventory wants: pure, from what `ansible-inventory --list` prints.

A datacenter has one network, the /24 of its hosts' addresses. The host `wan` has a leg in each, and every other host has a route
through it to each other datacenter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

from lab.errors import LabError

ROUTER: Final = "wan"
ROUTER_HOST: Final = 253
GATEWAY_HOST: Final = 254
"""Docker would give its own end of a network the address .1, which is a broker's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One datacenter's network."""

    datacenter: str
    subnet: IPv4Network

    @property
    def name(self) -> str:
        return f"headrace-lab-{self.datacenter}"

    @property
    def gateway(self) -> IPv4Address:
        return self.subnet[GATEWAY_HOST]

    @property
    def router(self) -> IPv4Address:
        """The address of `wan` here."""
        return self.subnet[ROUTER_HOST]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One container: its address in each network that it has a leg in, and where the other networks lie."""

    name: str
    legs: Mapping[str, IPv4Address]
    routes: tuple[str, ...] = ()
    """`SUBNET via ADDRESS`, as `ip route` takes them."""

    @property
    def is_router(self) -> bool:
        return self.name == ROUTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    networks: tuple[Network, ...]
    hosts: tuple[Host, ...]

    def network(self, datacenter: str) -> Network:
        """Raises LabError for a datacenter that the inventory does not have."""
        for network in self.networks:
            if network.datacenter == datacenter:
                return network
        names = ", ".join(network.datacenter for network in self.networks)
        raise LabError(f"The lab has no datacenter {datacenter}: name one of {names}.")


def topology_of(listing: Mapping[str, Any]) -> Topology:
    """What the lab starts for an inventory; raises LabError when it is no inventory of a lab."""
    variables: Mapping[str, Mapping[str, Any]] = listing["_meta"]["hostvars"]
    addresses = {
        name: _address(name, found) for name, found in variables.items() if "headrace_datacenter" in found
    }
    datacenters: dict[str, list[str]] = {}
    for name in addresses:
        datacenters.setdefault(str(variables[name]["headrace_datacenter"]), []).append(name)
    networks = tuple(
        _network(datacenter, {name: addresses[name] for name in names})
        for datacenter, names in datacenters.items()
    )
    if ROUTER not in variables or not networks:
        raise LabError(
            f"The inventory has no host {ROUTER} or no datacenter: name an inventory of the lab, such as inventory/docker-small."
        )
    _refuse_overlaps(networks, addresses)
    hosts = [
        Host(name=name, legs={network.name: addresses[name]}, routes=_routes(network, networks))
        for network in networks
        for name in datacenters[network.datacenter]
    ]
    router = Host(name=ROUTER, legs={network.name: network.router for network in networks})
    return Topology(networks=networks, hosts=(router, *hosts))


def _address(name: str, variables: Mapping[str, Any]) -> IPv4Address:
    try:
        return IPv4Address(str(variables.get("headrace_address")))
    except ValueError:
        raise LabError(f"{name} has no IPv4 address: give it a headrace_address such as 10.77.1.1.") from None


def _network(datacenter: str, addresses: Mapping[str, IPv4Address]) -> Network:
    subnets = {IPv4Network((address, 24), strict=False) for address in addresses.values()}
    if len(subnets) > 1:
        found = " and ".join(map(str, sorted(subnets)))
        raise LabError(
            f"The hosts of {datacenter} are in {found}: a datacenter of the lab has one such network."
        )
    return Network(datacenter=datacenter, subnet=subnets.pop())


def _refuse_overlaps(networks: tuple[Network, ...], addresses: Mapping[str, IPv4Address]) -> None:
    if len({network.subnet for network in networks}) < len(networks):
        raise LabError("Two datacenters have addresses in the same network: give each a /24 of its own.")
    taken: dict[IPv4Address, str] = {}
    for network in networks:
        taken |= {
            network.router: f"{ROUTER}'s leg",
            network.gateway: "the gateway",
            network.subnet[0]: "no host's",
        }
    for name, address in addresses.items():
        if address in taken:
            raise LabError(f"{name} has the address {address}, which is {taken[address]}: give it another.")
        taken[address] = f"{name}'s too"


def _routes(own: Network, networks: tuple[Network, ...]) -> tuple[str, ...]:
    return tuple(f"{other.subnet} via {own.router}" for other in networks if other != own)
