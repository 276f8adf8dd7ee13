"""`headrace mirror`: what the copies of an offline cluster are doing, and the order to go on after a stop.

Speaks the Kafka protocol only: states are read from the topic `headrace.mirror`, ends from both clusters, and a resume is a
record in the partition of that topic which the owning broker leads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from headrace.broker.config import ConfigurationError
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.mirror import state
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.config import parse_addresses
from headrace.mirror.connection import FAILURES
from headrace.mirror.state import State

STATES = "headrace.mirror"
Answer = TypeVar("Answer")

bootstrap_option = click.option(
    "--bootstrap", required=True, metavar="HOST:PORT,...", help="Brokers of the offline cluster."
)


@click.group(epilog="Example: headrace mirror status --bootstrap 127.0.3.1:9092")
def mirror() -> None:
    """Show and resume mirror partitions."""


@mirror.command(epilog="Example: headrace mirror status --bootstrap 127.0.3.1:9092 --json")
@bootstrap_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(bootstrap: str, as_json: bool) -> None:
    """Print every mirror partition with its lag; exit 1 while one is stopped."""
    rows = _run(bootstrap, _status)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        table = Table(box=None)
        for name in ("topic", "partition", "state", "copied to", "source end", "lag", "reason"):
            table.add_column(name)
        for row in rows:
            table.add_row(*("" if value is None else str(value) for value in row.values()))
        Console().print(table)
    if any(row["state"] == "stopped" for row in rows):
        raise click.exceptions.Exit(1)


@mirror.command(epilog="Example: headrace mirror resume dc-east.pageviews 3 --bootstrap 127.0.3.1:9092")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@bootstrap_option
def resume(topic: str, partition: int, bootstrap: str) -> None:
    """Go on copying a stopped partition; what is passed over is recorded as a finding."""
    reason = _run(bootstrap, lambda client: _resume(client, topic, partition))
    click.echo(f"{topic}-{partition} goes on; it had stopped because {reason}.")


def _run(bootstrap: str, work: Callable[[ClusterClient], Awaitable[Answer]]) -> Answer:
    try:
        addresses = parse_addresses("--bootstrap", bootstrap)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None

    async def run() -> Answer:
        async with ClusterClient(addresses) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except (*FAILURES, KafkaError) as error:
        raise click.ClickException(
            f"the cluster at {bootstrap} does not answer ({error or type(error).__name__}): "
            "check --bootstrap and that its brokers run"
        ) from error


async def _states(client: ClusterClient) -> dict[str, State]:
    """Newest state of every mirror partition by its key; like the copiers, it passes over what is no state."""
    found: dict[str, State] = {}
    for record in await client.read(STATES):
        try:
            key = (record.key or b"").decode()
            if not key.endswith(state.RESUME_SUFFIX):
                found[key] = state.decode(record.value or b"")
        except ValueError as error:
            click.echo(f"Warning: a record of {STATES} is passed over: {error}", err=True)
    return found


async def _status(client: ClusterClient) -> list[dict[str, Any]]:
    rows = []
    source_ends: dict[str, dict[str, int]] = {}
    own_ends = await client.log_ends()
    for key, found in sorted((await _states(client)).items()):
        if key not in own_ends:
            continue
        if found.source_bootstrap not in source_ends:
            source_ends[found.source_bootstrap] = await _ends_of(found.source_bootstrap)
        topic, _, partition = key.rpartition("-")
        source_end = source_ends[found.source_bootstrap].get(topic.partition(".")[2] + "-" + partition)
        stopped = found.stopped
        rows.append(
            {
                "topic": topic,
                "partition": int(partition),
                "state": _state_word(found, source_end),
                "log_end_offset": own_ends[key],
                "source_end_offset": source_end,
                "lag": None if source_end is None else max(0, source_end - own_ends[key]),
                "reason": None if stopped is None else f"{stopped.kind}: {stopped.reason}",
            }
        )
    return rows


def _state_word(found: State, source_end: int | None) -> str:
    if found.stopped is not None:
        return "stopped"
    return "copying" if source_end is not None else "source unreachable"


async def _ends_of(bootstrap: str) -> dict[str, int]:
    """Log ends of a source by topic and partition; empty when it does not answer."""
    try:
        async with ClusterClient(parse_addresses("bootstrap", bootstrap)) as client:
            return await client.log_ends()
    except (*FAILURES, KafkaError, ConfigurationError):
        return {}


async def _resume(client: ClusterClient, topic: str, partition: int) -> str:
    found = (await _states(client)).get(f"{topic}-{partition}")
    if found is None:
        raise click.ClickException(
            f"{topic}-{partition} is no mirror partition; `headrace mirror status` shows those there are"
        )
    if found.stopped is None:
        raise click.ClickException(f"{topic}-{partition} is not stopped, there is nothing to resume")
    owner = await client.leader_of(topic, partition)
    places = await client.led_by(STATES, owner)
    if not places:
        raise click.ClickException(f"broker {owner}, which leads {topic}-{partition}, does not mirror")
    code = await client.publish(
        STATES, places[0], state.resume_key(topic, partition), state.encode_resume(found.stopped)
    )
    if code:
        raise click.ClickException(f"the resume was not accepted: {ErrorCode(code).name}; try again")
    return f"{found.stopped.kind}: {found.stopped.reason}"
