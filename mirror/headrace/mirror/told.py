"""What a cluster's brokers wrote of its mirror, as a command reads it: states and orders, findings, reports of sources.

Like the copiers, a command passes over what it cannot read, with a warning.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import click

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.config.copies import MIRROR_CLUSTERS, MIRROR_REMOTE
from headrace.broker.errors import KafkaError, reason_of
from headrace.mirror import lineage
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.lineage import Standing
from headrace.mirror.memory import findings, reports
from headrace.mirror.memory.findings import CopyFinding
from headrace.mirror.memory.orders import Promoted
from headrace.mirror.memory.own_topics import FINDINGS, SOURCES, STATES
from headrace.mirror.memory.reports import Report, SourceReport
from headrace.mirror.memory.state import State, topic_of
from headrace.mirror.memory.states import States
from headrace.mirror.names import CopyNames, named_of
from headrace.mirror.source_access import client_of


def _passed_over(topic: str, error: ValueError) -> None:
    click.echo(f"Warning: a record of {topic} is passed over: {error}", err=True)


def _finding_passed_over(error: ValueError) -> None:
    _passed_over(FINDINGS, error)


async def states_of(client: ClusterClient) -> dict[str, State]:
    """`<topic>-<partition>` → what is known of the copy."""
    return newest(await folded(client), client)


async def folded(client: ClusterClient) -> States:
    """All that `headrace.mirror` says."""
    found = States()
    for partition, records in (await client.read(STATES)).items():
        for record in records:
            try:
                found.take(partition, record)
            except ValueError as error:
                _passed_over(STATES, error)
    return found


def newest(found_states: States, client: ClusterClient) -> dict[str, State]:
    """`<topic>-<partition>` → the newest state of the copy that there is."""
    found = {}
    for place in found_states.places():
        state = found_states.newest(place, client.topic_ids.get(topic_of(place.decode())))
        if state is not None:
            found[place.decode()] = state
    return found


async def names_of(client: ClusterClient) -> CopyNames:
    """What the cluster's copies are called."""
    return named_of(await client.configs_of(sorted({topic for topic, _ in client.leaders}), (MIRROR_REMOTE,)))


async def promoted_of(client: ClusterClient, known: States) -> dict[str, Promoted]:
    """What the topics that were promoted, and are no copies again, were copies of."""
    found = {
        topic: was
        for topic in {topic for topic, _ in client.leaders}
        if (was := known.promoted_of(topic)) is not None
    }
    configs = await client.configs_of(sorted(found), (MIRROR_CLUSTERS,))
    return {
        topic: was
        for topic, was in found.items()
        if lineage.standing(configs.get(topic, {}), is_remembered=False) is Standing.FORMER
    }


async def reports_of(client: ClusterClient) -> dict[int, Report]:
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


async def findings_of(
    client: ClusterClient, passed_over: Callable[[ValueError], None] = _finding_passed_over
) -> list[CopyFinding]:
    """All findings that there are; `passed_over` hears of each record that is none."""
    by_partition = await client.read(FINDINGS)
    return [found for records in by_partition.values() for found in findings.decoded(records, passed_over)]


async def source_of(client: ClusterClient, source: str) -> SourceReport:
    """What a broker tells of a source that it mirrors; raises ClickException for another one."""
    known = {told.name: told for report in (await reports_of(client)).values() for told in report.sources}
    if source not in known:
        names = ", ".join(sorted(known)) or "none"
        raise click.ClickException(f"no broker mirrors a source {source}; there are: {names}")
    return known[source]


@asynccontextmanager
async def source_client(client: ClusterClient, source: str) -> AsyncIterator[ClusterClient]:
    """A source that a broker mirrors; raises ClickException for another one, and for one that does not answer."""
    async with _answering(await source_of(client, source)) as there:
        yield there


@asynccontextmanager
async def copied_source_client(client: ClusterClient, source: str) -> AsyncIterator[ClusterClient]:
    """As `source_client`; raises ClickException, too, for a source that is brought into aggregates: it has no copies."""
    told = await source_of(client, source)
    if told.is_aggregate:
        raise click.ClickException(
            f"{source} is brought into aggregates, and has no copies: give the name under which it is copied, if it has one"
        )
    async with _answering(told) as there:
        yield there


@asynccontextmanager
async def _answering(source: SourceReport) -> AsyncIterator[ClusterClient]:
    there = client_of(source.name, source.bootstrap)
    try:
        await there.refresh()
    except (*FAILURES, KafkaError) as error:
        raise click.ClickException(
            f"{source.name} at {source.bootstrap} does not answer ({reason_of(error)}): see that its brokers run"
        ) from error
    with contextlib.closing(there):
        yield there
