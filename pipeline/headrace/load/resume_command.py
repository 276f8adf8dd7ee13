"""`headrace load resume` and `headrace load skip`: say what stands still, and let it go on where a person says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.bootstrap_option import bootstrap_option
from headrace.broker.errors import KafkaError
from headrace.broker.wire.partitions import TopicPartition
from headrace.load import resume as orders
from headrace.load.log_client import LogClient
from headrace.load.options import warehouse_options
from headrace.load.ranges import Passing
from headrace.load.resume import Done, NotPassedError, Order, Standing
from headrace.load.tables import NAMESPACE, WarehouseError, open_present


def _order_options(command: Callable[..., Any]) -> Callable[..., Any]:
    decorators = (
        click.argument("topic"),
        click.argument("partition", type=click.IntRange(min=0), required=False),
        click.option(
            "--from", "position", type=click.IntRange(min=0), help="The offset at which the table stands."
        ),
        click.option("--at", type=click.IntRange(min=0), help="The offset at which the load shall go on."),
        bootstrap_option("Brokers of the cluster to load from."),
        warehouse_options,
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    )
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


@click.command(
    epilog="Example: headrace load resume dc-east.pageviews 3 --from 40 --at 60 --bootstrap 127.0.3.1:9092 "
    "--warehouse var/warehouse"
)
@_order_options
def resume(topic: str, partition: int | None, **options: Any) -> None:
    """Let a partition go on whose offsets are gone or whose log is another one now.

    Without --from and --at it changes nothing and prints where each partition of TOPIC stands, why, and what to run.

    Where retention was faster than the load, --at is the log's start; the offsets between are passed over for good. Where
    the topic was made anew, the brokers are of another cluster, or the log lost its end and grew again, any offset that the
    log has now may be named: from there on its records are loaded, and their rows have another number in the column _life
    than those of the former log. A load that runs meanwhile goes on by itself. What was passed, and why, is in the table's
    snapshot and in the audit's report.
    """
    _run("resume", topic, partition, **options)


@click.command(
    epilog="Example: headrace load skip dc-east.pageviews 3 --from 40 --at 50 --bootstrap 127.0.3.1:9092 "
    "--warehouse var/warehouse"
)
@_order_options
def skip(topic: str, partition: int | None, **options: Any) -> None:
    """Let a partition go on behind a batch that cannot be read.

    Without --from and --at it changes nothing and prints where each partition of TOPIC stands, why, and what to run.

    Only a batch that does not match its checksum, or is of a message format older than 2, can be skipped, and only whole.
    Look first whether another replica has it sound. A load that runs meanwhile goes on by itself. The offsets and the
    reason are in the table's snapshot and in the audit's report.
    """
    _run("skip", topic, partition, **options)


def _run(
    order: Order,
    topic: str,
    partition: int | None,
    *,
    position: int | None,
    at: int | None,
    bootstrap: Bootstrap,
    warehouse: str,
    catalog_properties: dict[str, str],
    as_json: bool,
) -> None:
    if (position is None) != (at is None) or (at is not None and partition is None):
        raise click.UsageError(
            "name PARTITION, --from and --at together, or none of the offsets to see what there is."
        )
    client = LogClient(bootstrap, client_id="headrace-load")
    try:
        catalog = open_present(warehouse, catalog_properties)
        if position is None or at is None or partition is None:
            found = orders.standings(catalog, client, topic)
            _show([item for item in found if partition in (None, item.place.partition)], as_json)
        else:
            place = TopicPartition(topic, partition)
            _tell(orders.let_go_on(catalog, client, order, place, position, at), as_json)
    except (NotPassedError, WarehouseError, ConnectionFailedError, KafkaError) as error:
        raise click.ClickException(str(error)) from error
    finally:
        client.close()


def _show(found: list[Standing], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([_facts(item) for item in found]))
        return
    table = Table(box=None)
    for name in ("topic", "partition", "table stands at", "log", "state"):
        table.add_column(name)
    for item in found:
        state = "goes on" if item.finding is None else item.finding.kind
        log = f"{item.log.start} to {item.log.end}"
        table.add_row(item.place.topic, str(item.place.partition), str(item.position), log, state)
    Console().print(table)
    for item in found:
        if item.finding is not None:
            click.echo(item.finding.sentence)


def _facts(item: Standing) -> dict[str, Any]:
    finding = item.finding
    return {
        "table": f"{NAMESPACE}.{item.table}",
        "topic": item.place.topic,
        "partition": item.place.partition,
        "position": item.position,
        "log_start_offset": item.log.start,
        "log_end_offset": item.log.end,
        "life": item.life,
        "finding": None if finding is None else finding.kind,
        "reason": None if finding is None else finding.sentence,
        "go_on_at": None if finding is None else finding.go_on_at,
    }


def _tell(done: Done, as_json: bool) -> None:
    passing = done.passing
    if as_json:
        fields = {name: getattr(passing, name) for name in passing.__slots__}
        click.echo(json.dumps({**fields, "is_new": done.is_new}))
        return
    word = "goes on" if done.is_new else "had gone on before"
    click.echo(
        f"{passing.topic}-{passing.partition} {word} at offset {passing.next_offset}: {_passed(passing)}."
    )


def _passed(passing: Passing) -> str:
    if passing.is_new_life:
        return f"in another log, whose rows have _life {passing.life}"
    return f"offsets {passing.first_offset} to {passing.next_offset - 1} were passed over"
