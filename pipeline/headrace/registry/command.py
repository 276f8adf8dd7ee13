"""`headrace registry`: listen, replay, serve until SIGTERM. Wiring only."""

from __future__ import annotations

import asyncio
import signal
import sys

import click

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.bootstrap_option import bootstrap_option
from headrace.broker.structured_log import configure, get_logger
from headrace.registry.app import build_app
from headrace.registry.entrance import Entrance, entrance_options
from headrace.registry.listening import ListenAddress, Server, listen
from headrace.registry.pages import PATHS
from headrace.registry.service import Registry

logger = get_logger(__name__)


@click.command(epilog="Example: headrace registry --bootstrap 127.0.0.1:9092 --listen 127.0.0.1:8081")
@bootstrap_option("Brokers that keep the schemas.")
@click.option(
    "--listen",
    "listen_at",
    type=ListenAddress(),
    default="127.0.0.1:8081",
    show_default=True,
    help="Where to serve HTTP.",
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
@entrance_options
def registry(
    bootstrap: Bootstrap,
    listen_at: tuple[str, int],
    topic: str,
    replication_factor: int,
    replay_topics: str,
    entrance: Entrance,
) -> None:
    """Serve Confluent's schema registry API over a compacted topic.

    Any number of registries may serve one topic, all of them for reading and writing: the topic's order decides. With
    --replay-topics ids belong to their datacenter: ?subject=dc-east.SUBJECT at /schemas/ids/ID says whose is meant.

    Prints `ready HOST:PORT` on standard output once the topic has been replayed; until then, and while no
    broker is up, requests are answered with status 503. /metrics and the probes /live and /ready need no user.
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
    asyncio.run(_serve(bootstrap, listen_at, topic, replication_factor, replays, entrance))


async def _serve(
    bootstrap: Bootstrap,
    listen_at: tuple[str, int],
    topic: str,
    replication_factor: int,
    replay_topics: tuple[str, ...],
    entrance: Entrance,
) -> None:
    listener = listen(listen_at)
    address = f"{listen_at[0]}:{listener.getsockname()[1]}"
    service = Registry(
        bootstrap=bootstrap, topic=topic, replication_factor=replication_factor, replay_topics=replay_topics
    )
    server = Server(entrance.guarded(build_app(service), open_paths=PATHS), entrance)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    logger.info("listening", address=address)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(service.run()), tasks.create_task(_announce(service, address))]
        await server.serve(sockets=[listener])
        for task in running:
            task.cancel()


async def _announce(service: Registry, address: str) -> None:
    await service.ready.wait()
    click.echo(f"ready {address}")
    sys.stdout.flush()


if __name__ == "__main__":
    registry()
