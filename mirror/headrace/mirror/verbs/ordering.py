"""Giving orders to the brokers that copy: to go on, to pass over rot, to pause, to fetch no more than so much.

An order is a record of `headrace.mirror`. Each is checked first against what the brokers wrote, so that none is given for
what is not there, and answered with what to say of it; with `dry_run` nothing is written. Raises ClickException.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from headrace.broker.errors import ErrorCode
from headrace.mirror.aggregate.stream import Rot
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.memory import orders, state
from headrace.mirror.memory.findings import CopyFinding, Kind
from headrace.mirror.memory.own_topics import STATES, WRITTEN_PARTITION
from headrace.mirror.memory.reports import AggregateReport
from headrace.mirror.memory.state import SkipOrder, State, topic_of
from headrace.mirror.questions import UNKNOWN
from headrace.mirror.told import folded, newest, reports_of, source_of, states_of
from headrace.mirror.verbs import overview

Offsets = tuple[int, int]


async def _state_of(client: ClusterClient, topic: str, partition: int) -> State:
    found = (await states_of(client)).get(f"{topic}-{partition}")
    if found is None:
        raise click.ClickException(
            f"{topic}-{partition} is no mirror partition; `headrace mirror status` shows those there are"
        )
    return found


async def resume(client: ClusterClient, topic: str, partition: int, *, dry_run: bool = False) -> str:
    """Order that a stopped copy goes on; answers what to say of it."""
    found = await _state_of(client, topic, partition)
    if found.rotten is not None:
        raise click.ClickException(
            f"{topic}-{partition} is not stopped: the source's data is rotten at offsets "
            f"{overview.offsets_of(found.rotten)}, and is asked for until it is right; "
            "`headrace mirror skip` gives it up"
        )
    if found.stopped is None:
        raise click.ClickException(f"{topic}-{partition} is not stopped, there is nothing to resume")
    if not dry_run:
        await _order(client, topic, partition, state.RESUME, state.encode_resume(found.stopped))
    verb = "would go on" if dry_run else "goes on"
    stop = f"{topic}-{partition} {verb}; it had stopped because {found.stopped.kind}: {found.stopped.reason}."
    return " ".join((stop, *_cost(found.stopped)))


def _cost(stopped: CopyFinding) -> list[str]:
    """What a resume passes over, in a sentence, if it is anything."""
    first, last = stopped.first_offset, stopped.last_offset
    if last < first:
        return []
    if stopped.kind is Kind.GAP:
        return [f"Offsets {first} to {last}, which the source no longer has, are never in the copy."]
    if stopped.kind in (Kind.TRUNCATION, Kind.RECREATION):
        return [
            f"The source's new messages at offsets {first} to {last} are never in the copy, which waits until the source is "
            "past them; to have them, delete the topic here instead, and the mirror copies it anew."
        ]
    return []


async def skip(
    client: ClusterClient, topic: str, partition: int, offsets: Offsets, *, dry_run: bool = False
) -> str:
    """Order a skip, unless it is done already; answers what to say of it."""
    brought = await _brought(client, topic, partition)
    if brought is not None:
        return await _skip_in_aggregate(client, brought, offsets, dry_run=dry_run)
    found = await _state_of(client, topic, partition)
    first, last = offsets
    place = f"{topic}-{partition}"
    skipped = found.skipped
    is_done = skipped is not None and (skipped.first_offset, skipped.last_offset) == offsets
    if is_done and (found.rotten is None or found.rotten.first_offset != first):
        return f"Offsets {first} to {last} of {place} are skipped already."
    order = _skip_order(found, place, offsets)
    if not dry_run:
        await _order(client, topic, partition, state.SKIP, state.encode_skip(order))
    count = last - first + 1
    return (
        f"Offsets {first} to {last} of {place}, {count} message{'s' if count > 1 else ''} at most, "
        f"{'would' if dry_run else 'will'} never be in the copy: "
        f"the source's data there is rotten. The copy goes on behind them; the loss is recorded as a finding."
    )


async def _brought(client: ClusterClient, topic: str, partition: int) -> AggregateReport | None:
    """What its owner tells of a source's partition, `<source>.<topic>`, that is brought into an aggregate, if it is one."""
    reports = sorted((await reports_of(client)).values(), key=lambda report: report.at_ms)
    found = [
        told
        for report in reports
        for told in report.aggregates
        if (f"{told.source}.{told.topic}", told.partition) == (topic, partition)
    ]
    return found[-1] if found else None


async def _skip_in_aggregate(
    client: ClusterClient, told: AggregateReport, offsets: Offsets, *, dry_run: bool
) -> str:
    topic, (first, last) = f"{told.source}.{told.topic}", offsets
    place = f"{topic}-{told.partition}"
    if not told.rotten:
        raise click.ClickException(f"{place} is not rotten, there is nothing to skip")
    known_first, _, known_last = told.rotten.partition("-")
    if str(first) != known_first or known_last not in (str(last), "LAST"):
        raise click.ClickException(
            f"{place} is rotten at offsets {told.rotten}, not {first}-{last}: give --offsets {told.rotten}"
        )
    if not dry_run:
        order = SkipOrder(rot=Rot(first, last).name, last_offset=last)
        key = state.key_of(state.place_of(topic, told.partition), state.SKIP)
        await publish(client, key, state.SKIP, state.encode_skip(order))
    count = last - first + 1
    return (
        f"Offsets {first} to {last} of {place}, {count} message{'s' if count > 1 else ''} at most, "
        f"{'would' if dry_run else 'will'} never be in {told.topic}: the source's data there is rotten. "
        "What lies behind them is brought within some seconds."
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
    await publish(client, state.key_of(state.place_of(topic, partition), order), order, value)


async def publish(client: ClusterClient, key: bytes, order: str, value: bytes) -> None:
    """Write a record of `headrace.mirror`; raises ClickException."""
    code = await client.publish(STATES, WRITTEN_PARTITION, key, value)
    if code:
        raise click.ClickException(f"the {order} was not accepted: {ErrorCode(code).name}; try again")


async def pause(client: ClusterClient, topics: Sequence[str], *, is_paused: bool, dry_run: bool) -> list[str]:
    """Order a pause of these copies or aggregates, or its end; answers what to say of each.

    Raises ClickException, then nothing is ordered.
    """
    known, reports = await folded(client), await reports_of(client)
    brought = {topic_of(place) for place in newest(known, client)}
    brought |= {told.topic for report in reports.values() for told in report.aggregates}
    for topic in topics:
        if topic not in brought:
            raise click.ClickException(
                f"{topic} is no mirror's copy; `headrace mirror status` shows those there are"
            )
    said = []
    for topic in topics:
        if known.is_paused(topic) == is_paused:
            said.append(f"{topic} is {'paused already' if is_paused else 'not paused'}.")
            continue
        if not dry_run:
            value = orders.encode_pause(is_paused=is_paused)
            await publish(client, orders.key_of(topic, orders.PAUSE), orders.PAUSE, value)
        verb = "would be" if dry_run else "is"
        what = f"`headrace mirror resume {topic}` lets it go on" if is_paused else "it goes on where it was"
        said.append(f"{topic} {verb} {'paused' if is_paused else 'resumed'}; {what}.")
    return said


async def choose(client: ClusterClient, source: str, pattern: str | None) -> None:
    value = orders.encode_topics(pattern)
    await publish(client, orders.key_of(source, orders.TOPICS), f"choice of {orders.TOPICS}", value)


async def limit(client: ClusterClient, source: str, bytes_per_second: int | None, *, dry_run: bool) -> None:
    await source_of(client, source)
    if not dry_run:
        value = orders.encode_limit(bytes_per_second)
        await publish(client, orders.key_of(source, orders.LIMIT), orders.LIMIT, value)
