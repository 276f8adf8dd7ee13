"""`headrace registry`: listen, replay, serve until SIGTERM. Wiring only."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
import uvicorn

from headrace.broker.structured_log import configure, get_logger
from headrace.registry.app import build_app
from headrace.registry.service import Registry

logger = get_logger(__name__)


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


@click.command(epilog="Example: headrace registry --bootstrap 127.0.0.1:9092 --listen 127.0.0.1:8081")
@click.option("--bootstrap", required=True, metavar="HOST:PORT,...", help="Brokers that keep the schemas.")
@click.option(
    "--listen", type=ListenAddress(), default="127.0.0.1:8081", show_default=True, help="Where to serve HTTP."
)
@click.option(
    "--topic",
    default="_schemas",
    show_default=True,
    help="Topic that holds the schemas; created when missing.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(-1, 32767),
    default=-1,
    show_default=True,
    help="Replicas of the topic when it is created; -1 is the brokers' default.",
)
@click.option(
    "--replay-topics",
    default="",
    metavar="TOPIC,...",
    help="Mirrored topics to serve too, read-only: subjects of dc-east._schemas are named dc-east.SUBJECT.",
)
def registry(
    bootstrap: str, listen: tuple[str, int], topic: str, replication_factor: int, replay_topics: str
) -> None:
    """Serve Confluent's schema registry API over a compacted topic.

    Any number of registries may serve one topic, all of them for reading and writing: the topic's order decides. With
    --replay-topics ids belong to their datacenter: ?subject=dc-east.SUBJECT at /schemas/ids/ID says whose is meant.

    Prints `ready HOST:PORT` on standard output once the topic has been replayed; until then, and while no
    broker is up, requests are answered with status 503.
    """
    if replication_factor == 0:
        raise click.UsageError(
            "--replication-factor 0 makes no sense: give 1 or more, or -1 for the brokers' default."
        )
    replays = tuple(name.strip() for name in replay_topics.split(",") if name.strip())
    for name in replays:
        if name == topic or not name.endswith(topic):
            raise click.UsageError(
                f"--replay-topics: {name} must be a prefix, such as dc-east., followed by {topic}."
            )
    configure()
    asyncio.run(_serve(bootstrap, listen, topic, replication_factor, replays))


async def _serve(
    bootstrap: str,
    listen: tuple[str, int],
    topic: str,
    replication_factor: int,
    replay_topics: tuple[str, ...],
) -> None:
    family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
    try:
        listener = socket.create_server(listen, family=family, backlog=1024)
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {listen[0]}:{listen[1]}: {error.strerror}; choose another --listen."
        ) from error
    address = f"{listen[0]}:{listener.getsockname()[1]}"
    service = Registry(
        bootstrap=bootstrap, topic=topic, replication_factor=replication_factor, replay_topics=replay_topics
    )
    server = Server(uvicorn.Config(build_app(service), log_level="warning", access_log=False, lifespan="off"))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    logger.info("listening", address=address)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(service.run()), tasks.create_task(_announce(service, address))]
        await server.serve(sockets=[listener])
        for task in running:
            task.cancel()


class Server(uvicorn.Server):
    """uvicorn's server without its signal handling, which ends the process by the signal instead of with exit 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        self.should_exit = True


async def _announce(service: Registry, address: str) -> None:
    await service.ready.wait()
    click.echo(f"ready {address}")
    sys.stdout.flush()


if __name__ == "__main__":
    registry()
