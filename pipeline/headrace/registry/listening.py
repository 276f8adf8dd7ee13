"""How a command of the pipeline serves HTTP: an address to listen at, and uvicorn without its signal handling.

Shared by the registry and the audit's page.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import click
import uvicorn
from starlette.types import ASGIApp

from headrace.broker.addresses import PORT_MAX, split_address
from headrace.broker.structured_log import get_logger
from headrace.registry.entrance import OPEN, Entrance

logger = get_logger(__name__)
LOOK_TICKS = 50
"""Of uvicorn: five seconds."""


class ListenAddress(click.ParamType[tuple[str, int]]):
    """HOST:PORT; port 0 takes a free one."""

    name = "HOST:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        address = split_address(str(value))
        if address is None or not address[0]:
            self.fail(f"{value!r} is not HOST:PORT with a port from 0 to {PORT_MAX}", param, ctx)
        return address


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
    """uvicorn's server of an application behind an entrance, which looks for a renewed certificate now and then.

    Without its signal handling, which ends the process by the signal instead of with exit 0.
    """

    def __init__(
        self, app: ASGIApp, entrance: Entrance = OPEN, *, shutdown_seconds: int | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=shutdown_seconds,
        )
        config.load()
        config.ssl = entrance.context()
        super().__init__(config)
        self._entrance = entrance
        self._stamp = entrance.stamp()
        # Of what is served, in seconds since 1970.
        self.certificate_expires_s = entrance.expires_s()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if counter % LOOK_TICKS == 0:
            self._look_at_certificate()
        return await super().on_tick(counter)

    def _look_at_certificate(self) -> None:
        stamp = self._entrance.stamp()
        if stamp == self._stamp or self.config.ssl is None:
            return
        try:
            self._entrance.context()
            self.config.ssl.load_cert_chain(self._entrance.certificate or "", self._entrance.key)
        except click.ClickException as error:
            logger.warning("a changed certificate is not served", reason=error.message)
        else:
            self.certificate_expires_s = self._entrance.expires_s()
            logger.info("a renewed certificate is served")
        self._stamp = stamp

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True
