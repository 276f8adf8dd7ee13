"""`headrace registry`: listen, replay, serve until SIGTERM. Wiring only."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from functools import partial

import click

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.bootstrap_option import bootstrap_option
from headrace.broker.structured_log import configure, get_logger
from headrace.registry.app import build_app
from headrace.registry.entrance import OPEN, Entrance, entrance_options
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
    "--plain-listen",
    "plain_at",
    type=ListenAddress(),
    help="Where to serve everybody without TLS, too, while clients go over to HTTPS.",
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
    plain_at: tuple[str, int] | None,
    topic: str,
    replication_factor: int,
    replay_topics: str,
    entrance: Entrance,
) -> None:
    """Serve Confluent's schema registry API over a compacted topic.

    Any number of registries may serve one topic, all of them for reading and writing: the topic's order decides. With
    --replay-topics ids belong to their datacenter: ?subject=dc-east.SUBJECT at /schemas/ids/ID says whose is meant.

    Prints `ready HOST:PORT`, of --listen, on standard output once the topic has been replayed; until then, and while no
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
    places = [(listen_at, entrance)] + ([] if plain_at is None else [(plain_at, OPEN)])
    make = partial(
        Registry,
        bootstrap=bootstrap,
        topic=topic,
        replication_factor=replication_factor,
        replay_topics=replays,
    )
    asyncio.run(_serve(make, places))


async def _serve(make: Callable[[], Registry], places: list[tuple[tuple[str, int], Entrance]]) -> None:
    service = make()
    # The first of them is the one of --listen.
    app = build_app(service, lambda: serving[0][1].certificate_expires_s)
    serving = [
        (listen(at), Server(entrance.guarded(app, open_paths=PATHS), entrance)) for at, entrance in places
    ]
    addresses = [
        f"{at[0]}:{listener.getsockname()[1]}" for (at, _), (listener, _) in zip(places, serving, strict=True)
    ]
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _stop, [server for _, server in serving])
    logger.info("listening", address=", ".join(addresses))
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(service.run()), tasks.create_task(_announce(service, addresses[0]))]
        await asyncio.gather(*(server.serve(sockets=[listener]) for listener, server in serving))
        for task in running:
            task.cancel()


def _stop(servers: list[Server]) -> None:
    for server in servers:
        server.stop()


async def _announce(service: Registry, address: str) -> None:
    await service.ready.wait()
    click.echo(f"ready {address}")
    sys.stdout.flush()


if __name__ == "__main__":
    registry()
