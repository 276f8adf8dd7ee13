"""HOST:PORT as settings and options have it."""

from __future__ import annotations

from typing import Final

PORT_MAX: Final = 65535


def split_address(text: str) -> tuple[str, int] | None:
    """Return host, which may be empty and has lost the brackets of IPv6, and port (0 to 65535); None: it is no HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_text(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
