"""What hosts are called, and the addresses that these names stand for."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from headrace.broker.server.settings.addresses import numeric, resolve


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:DB8:0::1", "2001:db8:0:0:0:0:0:1"),
        ("localhost", None),
        ("%3A%3A1", None),
        ("", None),
        ("a" * 300, None),
    ],
)
def test_an_address_is_told_as_those_of_clients_and_a_name_is_none(host: str, address: str | None) -> None:
    assert numeric(host) == address


def test_of_several_addresses_of_a_name_one_of_ipv4_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, list[tuple[Any, Any]]] = {
        "both": [(socket.AF_INET6, ("2001:db8::1", 0, 0, 0)), (socket.AF_INET, ("10.0.0.1", 0))],
        "new": [(socket.AF_INET6, ("2001:db8::1", 0, 0, 0))],
    }

    async def looked_up() -> list[str | None]:
        loop = asyncio.get_running_loop()

        async def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
            if host not in known:
                raise socket.gaierror
            return [(family, socket.SOCK_STREAM, 6, "", address) for family, address in known[host]]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        return [await resolve(host) for host in ("both", "new", "nobody", "10.0.0.2")]

    assert asyncio.run(looked_up()) == ["10.0.0.1", "2001:db8:0:0:0:0:0:1", None, "10.0.0.2"]
