"""How a command of the pipeline serves HTTP: an address to listen at, and uvicorn without its signal handling.

Shared by the registry and the audit's page.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import click
import uvicorn


class ListenAddress(click.ParamType[tuple[str, int]]):
    """HOST:PORT; port 0 takes a free one."""

    name = "HOST:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        host, separator, port = str(value).rpartition(":")
        if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT with a port from 0 to 65535", param, ctx)
        return host.strip("[]"), int(port)


def listen(address: tuple[str, int]) -> socket.socket:
    """Listen there; ClickException where that cannot be."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=1024)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {address[0]}:{address[1]}: {error.strerror}; choose another --listen."
        ) from error


class Server(uvicorn.Server):
    """uvicorn's server without its signal handling, which ends the process by the signal instead of with exit 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True
