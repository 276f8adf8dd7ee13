"""`headrace mirror`: what the copies of an offline cluster are doing, and the orders to go on after a stop or over
rot, the end of a copy.

Speaks the Kafka protocol only: states are read from the topic `headrace.mirror`, what the brokers hear of their sources
from `headrace.sources`, ends from both clusters; an order is a record of `headrace.mirror`, which all brokers read.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.mirror import overview, reports, state
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.config import parse_addresses
from headrace.mirror.own_topics import SOURCES, STATES, WRITTEN_PARTITION
from headrace.mirror.promotion import promote as promote_topics
from headrace.mirror.questions import UNKNOWN
from headrace.mirror.reports import Report
from headrace.mirror.state import SkipOrder, State
from headrace.mirror.states import States

Answer = TypeVar("Answer")
Offsets = tuple[int, int]

bootstrap_option = click.option(
    "--bootstrap", required=True, metavar="HOST:PORT,...", help="Brokers of the offline cluster."
)


class OffsetRangeType(click.ParamType[Offsets]):
    """FIRST-LAST, both included."""

    name = "FIRST-LAST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Offsets:
        first, dash, last = str(value).partition("-")
        if not (dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            self.fail(f"{value!r} is no range of offsets: give FIRST-LAST, as in 1200-1249", param, ctx)
        return int(first), int(last)


@click.group(epilog="Example: headrace mirror status --bootstrap 127.0.3.1:9092")
def mirror() -> None:
    """Show copies, let those that cannot go on do so, and promote them."""


@mirror.command(epilog="Example: headrace mirror status --bootstrap 127.0.3.1:9092 --json")
@bootstrap_option
@click.option(
    "--lag-max",
    type=click.IntRange(min=0),
    metavar="MESSAGES",
    help="Exit 1 also while a copy is further behind its source, or nobody knows how far.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(bootstrap: str, lag_max: int | None, as_json: bool) -> None:
    """Print every source, every topic without a copy and every mirror partition; exit 1 while one needs you."""
    found = _run(bootstrap, _status)
    if as_json:
        click.echo(json.dumps(found))
    else:
        _print(found)
    if not overview.is_in_order(found) or not overview.is_within(found, lag_max):
        raise click.exceptions.Exit(1)


def _print(found: dict[str, list[dict[str, Any]]]) -> None:
    headings = {
        "sources": ("source", "broker", "at", "state", "answered", "reason"),
        "topics": ("source", "topic without a whole copy", "reason"),
        "partitions": ("topic", "partition", "state", "copied to", "source end", "lag", "reason"),
    }
    console = Console()
    for name, heading in headings.items():
        if not found[name]:
            continue
        table = Table(*heading, box=None)
        for row in found[name]:
            table.add_row(*(_cell(column, value) for column, value in row.items()))
        console.print(table)
    if not found["sources"]:
        console.print("No broker reports a source that it mirrors.")


def _cell(column: str, value: Any) -> str:
    if column == "answered_seconds_ago":
        return "never" if value is None else f"{value:.0f} s ago"
    if column in ("source_end_offset", "lag"):
        return "unknown" if value is None else str(value)
    return "" if value is None else str(value)


@mirror.command(epilog="Example: headrace mirror resume dc-east.pageviews 3 --bootstrap 127.0.3.1:9092")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@bootstrap_option
def resume(topic: str, partition: int, bootstrap: str) -> None:
    """Go on copying a stopped partition; what is passed over is recorded as a finding."""
    reason = _run(bootstrap, lambda client: _resume(client, topic, partition))
    click.echo(f"{topic}-{partition} goes on; it had stopped because {reason}.")


@mirror.command(
    epilog="Example: headrace mirror skip dc-east.pageviews 3 --offsets 1200-1249 --bootstrap 127.0.3.1:9092"
)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--offsets", required=True, type=OffsetRangeType(), help="The rotten offsets, as `status` names them."
)
@bootstrap_option
def skip(topic: str, partition: int, offsets: Offsets, bootstrap: str) -> None:
    """Give up a rotten batch of the source: its messages are never copied, which is recorded as a finding.

    \b
    Try first to have it healed at the source, by a replica that is whole:
    the mirror asks again and again, and copies it as soon as it is right.
    """
    click.echo(_run(bootstrap, lambda client: _skip(client, topic, partition, offsets)))


@mirror.command(epilog="Example: headrace mirror promote dc-east.pageviews --bootstrap 127.0.3.1:9092")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_option
def promote(topics: tuple[str, ...], bootstrap: str) -> None:
    """Make copies topics of this cluster: clients may write to them, and the mirror leaves them alone."""
    _run(bootstrap, lambda client: promote_topics(client, topics))
    for topic in topics:
        click.echo(f"{topic} is a topic of this cluster now: clients may write to it.")


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


# -- reading


def _passed_over(topic: str, error: ValueError) -> None:
    """Like the copiers, the command passes over what it cannot read."""
    click.echo(f"Warning: a record of {topic} is passed over: {error}", err=True)


async def _states(client: ClusterClient) -> dict[str, State]:
    """`<topic>-<partition>` → what is known of the copy."""
    folded = States()
    for partition, records in (await client.read(STATES)).items():
        for record in records:
            try:
                folded.take(partition, record)
            except ValueError as error:
                _passed_over(STATES, error)
    found = {}
    for place in folded.places():
        topic = place.decode().rpartition("-")[0]
        newest = folded.newest(place, client.topic_ids.get(topic))
        if newest is not None:
            found[place.decode()] = newest
    return found


async def _reports(client: ClusterClient) -> dict[int, Report]:
    """Broker → its newest report; earlier versions wrote to partitions of their own."""
    found: dict[int, Report] = {}
    for records in (await client.read(SOURCES)).values():
        for record in records:
            try:
                report = reports.decode(record.value or b"")
            except ValueError as error:
                _passed_over(SOURCES, error)
                continue
            if report.broker not in found or found[report.broker].at_ms <= report.at_ms:
                found[report.broker] = report
    return found


async def _status(client: ClusterClient) -> dict[str, list[dict[str, Any]]]:
    heard = overview.Heard(
        leaders=client.leaders,
        log_ends=await client.log_ends(),
        states=await _states(client),
        reports=await _reports(client),
    )
    source_ends = {
        source: await _ends_of(bootstrap) for source, bootstrap in overview.bootstraps(heard).items()
    }
    return overview.overview(heard, source_ends, time.time_ns() // 1_000_000)


async def _ends_of(bootstrap: str) -> dict[str, int]:
    """Log ends of a source by topic and partition; empty when it does not answer."""
    try:
        async with ClusterClient(parse_addresses("bootstrap", bootstrap)) as client:
            return await client.log_ends()
    except (*FAILURES, KafkaError, ConfigurationError):
        return {}


async def _state_of(client: ClusterClient, topic: str, partition: int) -> State:
    found = (await _states(client)).get(f"{topic}-{partition}")
    if found is None:
        raise click.ClickException(
            f"{topic}-{partition} is no mirror partition; `headrace mirror status` shows those there are"
        )
    return found


# -- orders


async def _resume(client: ClusterClient, topic: str, partition: int) -> str:
    found = await _state_of(client, topic, partition)
    if found.rotten is not None:
        raise click.ClickException(
            f"{topic}-{partition} is not stopped: the source's data is rotten at offsets "
            f"{overview.offsets_of(found.rotten)}, and is asked for until it is right; "
            "`headrace mirror skip` gives it up"
        )
    if found.stopped is None:
        raise click.ClickException(f"{topic}-{partition} is not stopped, there is nothing to resume")
    await _order(client, topic, partition, state.RESUME, state.encode_resume(found.stopped))
    return f"{found.stopped.kind}: {found.stopped.reason}"


async def _skip(client: ClusterClient, topic: str, partition: int, offsets: Offsets) -> str:
    """Order a skip, unless it is done already; answers what to say of it."""
    found = await _state_of(client, topic, partition)
    first, last = offsets
    place = f"{topic}-{partition}"
    skipped = found.skipped
    is_done = skipped is not None and (skipped.first_offset, skipped.last_offset) == offsets
    if is_done and (found.rotten is None or found.rotten.first_offset != first):
        return f"Offsets {first} to {last} of {place} are skipped already."
    order = _skip_order(found, place, offsets)
    await _order(client, topic, partition, state.SKIP, state.encode_skip(order))
    count = last - first + 1
    return (
        f"Offsets {first} to {last} of {place}, {count} message{'s' if count > 1 else ''} at most, will never be in the copy: "
        f"the source's data there is rotten. The copy goes on behind them; the loss is recorded as a finding."
    )


def _skip_order(found: State, place: str, offsets: Offsets) -> SkipOrder:
    """The order to skip these offsets; raises ClickException unless they are the rotten ones."""
    if found.stopped is not None:
        raise click.ClickException(
            f"{place} is stopped, not rotten ({found.stopped.kind}: {found.stopped.reason}); "
            "`headrace mirror resume` lets it go on"
        )
    if found.rotten is None:
        raise click.ClickException(f"{place} is not rotten, there is nothing to skip")
    order = SkipOrder(rot=state.stop_id(found.rotten), last_offset=offsets[1])
    if found.rotten.first_offset == offsets[0] and order.is_of(found.rotten):
        return order
    known = overview.offsets_of(found.rotten)
    if found.rotten.last_offset == UNKNOWN:
        raise click.ClickException(
            f"{place} is rotten from offset {found.rotten.first_offset} on, and nothing tells how far: "
            f"give --offsets {found.rotten.first_offset}-LAST with the last offset that you give up"
        )
    raise click.ClickException(
        f"{place} is rotten at offsets {known}, not {offsets[0]}-{offsets[1]}: give --offsets {known}"
    )


async def _order(client: ClusterClient, topic: str, partition: int, order: str, value: bytes) -> None:
    """Tell the broker that leads a copy; every one looks every second."""
    await client.leader_of(topic, partition)
    key = state.key_of(state.place_of(topic, partition), order)
    code = await client.publish(STATES, WRITTEN_PARTITION, key, value)
    if code:
        raise click.ClickException(f"the {order} was not accepted: {ErrorCode(code).name}; try again")
