"""`headrace mirror rehearse`: what groups of a source would lose or read twice if they moved to the copies now."""

from __future__ import annotations

import json
import re

import click
from rich.table import Table

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.console import console
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.commands.options import bootstrap_option, groups_option, json_option, run
from headrace.mirror.sync import group_offsets
from headrace.mirror.sync.groups import refusal
from headrace.mirror.told import copied_source_client
from headrace.mirror.verbs import rehearsal
from headrace.mirror.verbs.rehearsal import COUNTS, Row, SourceLogs

HEADINGS = {
    "group": "group",
    "topic": "topic",
    "partitions": "partitions",
    "without_copy": "without a copy",
    "read_twice": "read twice",
    "lost": "lost",
    "not_copied": "not copied yet",
}


@click.command(
    epilog="Example: headrace mirror rehearse dc-east --groups 'billing|audit-.*' --bootstrap 127.0.3.1:9092"
)
@click.argument("source")
@groups_option
@json_option
@bootstrap_option
def rehearse(source: str, pattern: re.Pattern[str], as_json: bool, bootstrap: Bootstrap) -> None:
    """Say how many messages each group of a source would lose or read twice if it moved to the copies now.

    \b
    Nothing is changed. `sync-groups` moves the groups, `promote` and `failover` the topics.
    """
    rows = run(bootstrap, lambda client: _rehearse(client, source, pattern))
    if as_json:
        click.echo(json.dumps({"groups": rows, "totals": rehearsal.totals(rows)}))
    else:
        _print(rows, source)


async def _rehearse(client: ClusterClient, source: str, pattern: re.Pattern[str]) -> list[Row]:
    async with copied_source_client(client, source) as there:
        copies, looks = await group_offsets.look(client, there, source, pattern)
        places = sorted({place for one in looks for place in one.committed})
        starts, ends = await there.log_starts(places), await there.log_ends(places)
    logs = SourceLogs(
        starts=group_offsets.by_place(places, starts), ends=group_offsets.by_place(places, ends)
    )
    rows: list[Row] = []
    for one in looks:
        reason = refusal(one.group, copies, one.state, one.here)
        rows += rehearsal.rows_of(one.group, one.committed, copies, logs, reason)
    return rows


def _print(rows: list[Row], source: str) -> None:
    if not rows:
        click.echo(f"No group of {source} that matches has committed an offset.")
        return
    table = Table(*HEADINGS.values(), box=None)
    total: Row = {"group": "all", "topic": "", **rehearsal.totals(rows)}
    for row in (*rows, total):
        table.add_row(*(f"{row[name]:,}" if name in COUNTS else str(row[name]) for name in HEADINGS))
    console(markup=False).print(table)
    for group, reason in {str(row["group"]): row["reason"] for row in rows if row["reason"]}.items():
        click.echo(f"{group} would be left alone: {reason}.")
