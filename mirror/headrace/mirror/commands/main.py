"""`headrace mirror`: what the copies of an offline cluster are doing, and the orders to go on after a stop or over
rot, the end of a copy.

Speaks the Kafka protocol only: states are read from the topic `headrace.mirror`, what the brokers hear of their sources
from `headrace.sources`, ends from both clusters; an order is a record of `headrace.mirror`, which all brokers read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.console import console
from headrace.broker.errors import KafkaError
from headrace.broker.moment import now_ms
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.commands.options import bootstrap_option, dry_run_option, groups_option, json_option, run
from headrace.mirror.commands.rehearse import rehearse
from headrace.mirror.commands.restore import restore
from headrace.mirror.commands.reverse import reverse
from headrace.mirror.commands.run import run as run_member
from headrace.mirror.commands.sync_acls import sync_acls
from headrace.mirror.commands.sync_configs import sync_configs
from headrace.mirror.commands.topics import left_out, topics
from headrace.mirror.commands.verify import verify
from headrace.mirror.config import AGGREGATE
from headrace.mirror.memory.state import topic_of
from headrace.mirror.source_access import client_of
from headrace.mirror.sync import group_offsets
from headrace.mirror.sync.groups import GroupMove
from headrace.mirror.told import copied_source_client, folded, names_of, newest, promoted_of, reports_of
from headrace.mirror.verbs import cut_transactions, ordering, overview, promotion
from headrace.mirror.verbs.needs import needs
from headrace.mirror.verbs.ordering import Offsets
from headrace.mirror.verbs.promotion import SILENT, Source, Standing


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
    """Show copies, compare them with their sources, pause them, let those that cannot go on do so, and promote them."""


@mirror.command(epilog="Example: headrace mirror status --bootstrap 127.0.3.1:9092 --json")
@bootstrap_option
@click.option(
    "--lag-max",
    type=click.IntRange(min=0),
    metavar="MESSAGES",
    help="Exit 1 also while a copy is further behind its source, or nobody knows how far.",
)
@json_option
def status(bootstrap: Bootstrap, lag_max: int | None, as_json: bool) -> None:
    """Print every source, topic without a copy, partition and what else is brought; exit 1 while one needs you.

    What needs you stands at the end once more, a line each.
    """
    found = run(bootstrap, _status)
    needed = needs(found, lag_max)
    if as_json:
        click.echo(json.dumps(found))
    else:
        _print(found, needed)
    if needed:
        raise click.exceptions.Exit(1)


def _print(found: dict[str, list[dict[str, Any]]], needed: Sequence[str]) -> None:
    headings = {
        "sources": ("source", "broker", "at", "mode", "state", "answered", "compared", "unchecked", "reason"),
        "topics": ("source", "topic without a whole copy", "reason"),
        "partitions": (
            "topic",
            "partition",
            "state",
            "copied to",
            "source end",
            "lag",
            "begins at",
            "reason",
        ),
        "promoted": ("topic that was promoted", "copied from", "cluster"),
        "aggregates": ("source", "brought into", "partition", "owner", "state", "lag", "reason"),
        "syncs": (
            "source",
            "brought",
            "by broker",
            "state",
            "last",
            "in step",
            "left alone",
            "behind",
            "reason",
        ),
    }
    screen = console(markup=False)
    for name, heading in headings.items():
        if not found[name]:
            continue
        table = Table(*heading, box=None)
        for row in found[name]:
            table.add_row(*(_cell(row, column) for column in row))
        screen.print(table)
    if not found["sources"]:
        screen.print("No broker reports a source that it mirrors.")
    if needed:
        screen.print("\nWhat needs you:", *needed, sep="\n", soft_wrap=True)


def _cell(row: Mapping[str, Any], column: str) -> str:
    value = row[column]
    if column in ("checked_seconds_ago", "unchecked") and row["mode"] == AGGREGATE:
        return ""
    if column in ("answered_seconds_ago", "succeeded_seconds_ago", "checked_seconds_ago"):
        return "never" if value is None else f"{value:.0f} s ago"
    if column in ("source_end_offset", "lag"):
        return "unknown" if value is None else str(value)
    return "" if value is None else str(value)


@mirror.command(epilog="Example: headrace mirror pause dc-east.pageviews --bootstrap 127.0.3.1:9092")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_option
@dry_run_option
def pause(topics: tuple[str, ...], bootstrap: Bootstrap, dry_run: bool) -> None:
    """Copy nothing more of these topics until they are resumed, restarts included; readers go on."""
    for line in run(
        bootstrap, lambda client: ordering.pause(client, topics, is_paused=True, dry_run=dry_run)
    ):
        click.echo(line)


@mirror.command(epilog="Example: headrace mirror resume dc-east.pageviews 3 --bootstrap 127.0.3.1:9092")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0), required=False)
@bootstrap_option
@dry_run_option
def resume(topic: str, partition: int | None, bootstrap: Bootstrap, dry_run: bool) -> None:
    """Go on copying a paused topic, or a stopped partition of one.

    \b
    What is passed over in a stopped partition is recorded as a finding.
    """
    if partition is None:
        for line in run(
            bootstrap, lambda client: ordering.pause(client, (topic,), is_paused=False, dry_run=dry_run)
        ):
            click.echo(line)
        return
    click.echo(run(bootstrap, lambda client: ordering.resume(client, topic, partition, dry_run=dry_run)))


@mirror.command(
    epilog="Example: headrace mirror skip dc-east.pageviews 3 --offsets 1200-1249 --bootstrap 127.0.3.1:9092"
)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--offsets", required=True, type=OffsetRangeType(), help="The rotten offsets, as `status` names them."
)
@bootstrap_option
@dry_run_option
def skip(topic: str, partition: int, offsets: Offsets, bootstrap: Bootstrap, dry_run: bool) -> None:
    """Give up a rotten batch of the source: its messages are never copied, which is recorded as a finding.

    \b
    Try first to have it healed at the source, by a replica that is whole:
    the mirror asks again and again, and copies it as soon as it is right.
    """
    click.echo(
        run(bootstrap, lambda client: ordering.skip(client, topic, partition, offsets, dry_run=dry_run))
    )


@mirror.command(epilog="Example: headrace mirror promote dc-east.pageviews --bootstrap 127.0.3.1:9092")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--timeout", default=60.0, type=click.FloatRange(min=0), help="Seconds to wait for.", show_default=True
)
@bootstrap_option
@dry_run_option
def promote(topics: tuple[str, ...], timeout: float, bootstrap: Bootstrap, dry_run: bool) -> None:
    """Make copies topics of this cluster, once they lack nothing that their source has.

    \b
    Stop the producers at the source first: what they write after this is lost to the copy.
    Clients may write to the topics then, and the mirror leaves them alone. `headrace mirror restore` goes back.
    """
    _promote(bootstrap, topics, timeout, dry_run=dry_run)


@mirror.command(epilog="Example: headrace mirror failover dc-east.pageviews --bootstrap 127.0.3.1:9092")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@bootstrap_option
@dry_run_option
def failover(topics: tuple[str, ...], bootstrap: Bootstrap, dry_run: bool) -> None:
    """Make copies topics of this cluster as they are, without their source; says what they lack.

    \b
    Clients may write to the topics then, and the mirror leaves them alone. `headrace mirror restore` goes back.
    """
    _promote(bootstrap, topics, None, dry_run=dry_run)


@mirror.command(epilog="Example: headrace mirror limit dc-east 50000000 --bootstrap 127.0.3.1:9092")
@click.argument("source")
@click.argument("bytes_per_second", type=click.IntRange(min=1), required=False)
@bootstrap_option
@dry_run_option
def limit(source: str, bytes_per_second: int | None, bootstrap: Bootstrap, dry_run: bool) -> None:
    """Change what each broker fetches of a source in a second at most, now; without a number to what is configured."""
    run(bootstrap, lambda client: ordering.limit(client, source, bytes_per_second, dry_run=dry_run))
    what = f"{bytes_per_second:,} bytes a second" if bytes_per_second else "what its configuration says"
    click.echo(f"Each broker {'would fetch' if dry_run else 'fetches'} at most {what} of {source}.")


@mirror.command(
    "sync-groups",
    epilog="Example: headrace mirror sync-groups dc-east --groups 'billing|audit-.*' --bootstrap 127.0.3.1:9092",
)
@click.argument("source")
@groups_option
@bootstrap_option
@dry_run_option
def sync_groups(source: str, pattern: re.Pattern[str], bootstrap: Bootstrap, dry_run: bool) -> None:
    """Let groups of a source go on in its copies: commit here what they committed there, as far as the copies go.

    \b
    A group that has members here, or committed here itself, is left alone, and none is moved back.
    `mirror.SOURCE.sync.groups` has the brokers do the same again and again.
    """

    async def work(client: ClusterClient) -> list[GroupMove]:
        async with copied_source_client(client, source) as there:
            found = await group_offsets.moves(client, there, source, pattern)
        return found if dry_run else await group_offsets.bring(client, found)

    moves = run(bootstrap, work)
    for move in moves:
        click.echo(group_offsets.told(move, dry_run=dry_run))
    if not moves:
        click.echo(
            f"No group of {source} that matches has committed an offset of a topic that has a copy here."
        )


mirror.add_command(sync_acls)
mirror.add_command(sync_configs)
mirror.add_command(rehearse)
mirror.add_command(restore)
mirror.add_command(reverse)
mirror.add_command(run_member)
mirror.add_command(verify)
mirror.add_command(topics)


# -- reading


async def _status(client: ClusterClient) -> dict[str, list[dict[str, Any]]]:
    known, names = await folded(client), await names_of(client)
    heard = overview.Heard(
        leaders=client.leaders,
        log_ends=await client.log_ends(),
        states=newest(known, client),
        reports=await reports_of(client),
        paused=frozenset(topic for topic, _ in client.leaders if known.is_paused(topic)),
        left_out=left_out(known, {topic for topic, _ in client.leaders}, names),
        promoted=await promoted_of(client, known),
        names=names,
    )
    source_ends = await _source_ends(overview.bootstraps(heard))
    return overview.overview(heard, source_ends, now_ms())


async def _source_ends(bootstraps: Mapping[str, str]) -> dict[str, Mapping[str, int]]:
    """Log ends of each of these sources, by topic and partition; none of one that does not answer."""
    return {source: (await _seen(source, bootstrap)).ends for source, bootstrap in bootstraps.items()}


async def _seen(source: str, bootstrap: str) -> Source:
    try:
        async with client_of(source, bootstrap) as client:
            ends = await client.log_ends()
            return Source(ends=ends, topic_ids=client.topic_ids, cluster_id=client.cluster_id)
    except (*FAILURES, KafkaError, ConfigurationError):
        return SILENT


# -- promoting


def _promote(bootstrap: Bootstrap, topics: Sequence[str], timeout: float | None, *, dry_run: bool) -> None:
    """Promote copies: when they are complete, waiting so long for it, or with None as they are; says what they lack then."""

    async def work(client: ClusterClient) -> int:
        copies, names = await promotion.check(client, topics), await names_of(client)
        origins = await promotion.origins_of(client, copies)

        async def look() -> list[Standing]:
            await client.refresh()
            ends, known = await client.log_ends(), await folded(client)
            states = newest(known, client)
            paused = {topic for topic in copies if known.is_paused(topic)}
            bootstraps = {
                names.source_of(topic_of(place)): copy.source_bootstrap
                for place, copy in states.items()
                if topic_of(place) in copies
            }
            sources = {source: await _seen(source, address) for source, address in bootstraps.items()}
            return promotion.standings(copies, client.leaders, ends, sources, states, paused, names, origins)

        if timeout is not None and not dry_run:
            found = await promotion.until_complete(look, timeout)
        else:
            found = await look()
            if timeout is not None:
                promotion.refuse_obstacles(found)
        for one in found:
            if one.lacks or one.obstacle:
                lacks = f"lacks {one.lacks}" if one.lacks else "lacks nothing that its source has"
                obstacle = f" ({one.obstacle})" if one.obstacle else ""
                end = "is no copy yet" if one.end is None else f"ends at {one.end}"
                click.echo(f"{one.topic}-{one.partition} {end}, and {lacks}{obstacle}.")
        cuts = await cut_transactions.listed(client, topics, lambda cut: cut.topic in copies)
        for cut in await cut_transactions.counted(client, cuts):
            click.echo(f"{cut}.")
        if dry_run:
            return len(cuts)
        await promotion.promote(client, copies)
        return await cut_transactions.end_all(client, topics, cuts)

    count = run(bootstrap, work)
    if count:
        what = f"{count:,} transaction{'' if count == 1 else 's'}"
        done = "would be" if dry_run else "is" if count == 1 else "are"
        click.echo(f"{what} {done} aborted.")
    verb = "would be" if dry_run else "is"
    for topic in topics:
        click.echo(
            f"{topic} {verb} a topic of this cluster{'' if dry_run else ' now'}: clients may write to it."
        )
