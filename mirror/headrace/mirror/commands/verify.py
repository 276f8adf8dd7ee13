"""`headrace mirror verify`: whether copies hold what their sources hold, byte for byte.

Speaks the Kafka protocol only, so a source may be of any engine. What is compared is planned by `equality/tasks`, read by
`equality/verifier`, and decided by `equality/comparison`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.console import console
from headrace.broker.moment import Moment
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.commands.options import bootstrap_option, json_option, run
from headrace.mirror.equality import tasks, verification
from headrace.mirror.equality.verification import Row, Verdict
from headrace.mirror.equality.verifier import Verifier


@click.command(
    epilog="Example: headrace mirror verify dc-east.pageviews --since 24h --bootstrap 127.0.3.1:9092"
)
@click.argument("topics", nargs=-1, metavar="[TOPIC...]")
@click.option("--source", metavar="SOURCE", help="Only copies of this datacenter.")
@click.option(
    "--since",
    "since_ms",
    type=Moment(),
    metavar="TIME",
    help="Only messages from this time on: 2026-01-31T23:59:50Z, or how long ago, such as 15m or 7d.",
)
@json_option
@bootstrap_option
def verify(
    topics: tuple[str, ...], source: str | None, since_ms: int | None, as_json: bool, bootstrap: Bootstrap
) -> None:
    """Compare copies with their sources, byte for byte; exit 1 where one differs or could not be compared.

    \b
    All that both sides have is read from both, so give --since or topics where that is much.
    Without a topic every copy is compared.
    """
    verdicts: dict[PartitionKey, Verdict] = {}

    async def work(client: ClusterClient) -> None:
        plan = await tasks.plan(client, topics, source, since_ms)
        verdicts.update({task.place: task.refused("stopped before it was compared") for task in plan.tasks})
        verdicts.update({refused.place: refused for refused in plan.verdicts})
        with _progress(sum(task.extents.end - task.extents.first for task in plan.tasks)) as moved:
            verifier = Verifier(
                lambda: ClusterClient(client.bootstrap, security=client.security), plan.sources, moved
            )
            await verifier.run(plan.tasks, lambda told: verdicts.__setitem__(told.place, told))

    is_stopped = False
    try:
        run(bootstrap, work)
    except KeyboardInterrupt:
        is_stopped = True
    rows = [verdict.as_row() for _, verdict in sorted(verdicts.items())]
    if as_json:
        click.echo(json.dumps({"partitions": rows}))
    else:
        _print(rows)
    if is_stopped or not all(row["result"] in verification.IN_ORDER for row in rows):
        raise click.exceptions.Exit(1)


def _print(rows: Sequence[Row]) -> None:
    screen = console(markup=False)
    table = Table("topic", "partition", "result", "offsets compared", "not compared", box=None)
    reasons = Counter(row["reason"] for row in rows if row["reason"])
    for row in rows:
        compared = ""
        if row["end_offset"] is not None and row["end_offset"] > row["first_offset"]:
            compared = f"{row['first_offset']:,} to {row['end_offset'] - 1:,}"
        table.add_row(row["topic"], str(row["partition"]), row["result"], compared, verification.outside(row))
    if rows:
        screen.print(table)
    for row in rows:
        if row["difference"] is not None:
            found = row["difference"]
            click.echo(
                f"{row['topic']}-{row['partition']} differs from {row['source']} from offset {found['offset']} on:\n"
                f"  source: {found['source']}\n  copy:   {found['copy']}"
            )
    for reason, count in reasons.items():
        click.echo(f"{count:,} {'partition' if count == 1 else 'partitions'}: {reason}.")
    click.echo(verification.summary(rows))


@contextmanager
def _progress(offsets: int) -> Iterator[Callable[[int], None]]:
    """Give what shows on a terminal how many more offsets are compared."""
    progress_bar = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_bar, disable=not progress_bar.is_terminal) as progress:
        shown = progress.add_task("offsets compared", total=offsets)
        yield lambda count: progress.advance(shown, count)
