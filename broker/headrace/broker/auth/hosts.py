"""How the address of a client is written: as Java does, so that an access control list means the same to both kinds of broker."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address


def host_text(address: str) -> str:
    """An address as `InetAddress.getHostAddress` writes it: of IPv6 all eight groups, an IPv4 one never in the clothes of IPv6.

    Raises ValueError for what is no address.
    """
    bare, percent, zone = address.partition("%")
    found = ip_address(bare)
    if isinstance(found, IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in found.exploded.split(":")) + percent + zone
