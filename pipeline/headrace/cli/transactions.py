"""`headrace transactions`: what goes on in transactions, and the end of those that hang (KIP-664).

By the Kafka protocol alone, so it serves Apache Kafka's brokers, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.wire.partitions import PartitionKey
from headrace.cli.broker_answers import TIMEOUT_SECONDS
from headrace.cli.cluster_admin import ClusterAdmin
from headrace.cli.hanging_transactions import Described, ProducerState, hanging, overdue
from headrace.cli.shared import bootstrap_option, json_option, print_rows, say
from headrace.cli.transaction_admin import TransactionAdmin

MINUTE_MS = 60_000
Row = dict[str, Any]
broker_option = click.option(
    "--broker-id",
    type=click.IntRange(min=0),
    metavar="BROKER",
    help="Ask this broker for the partitions that it leads, instead of all.",
)


@click.group(epilog="Example: headrace transactions find-hanging --bootstrap 127.0.0.1:9092")
def transactions() -> None:
    """List and describe transactions, find those that hang and abort them."""


@contextmanager
def _asking(bootstrap: Bootstrap) -> Iterator[TransactionAdmin]:
    with ClusterAdmin(bootstrap, "headrace-transactions", timeout_seconds=TIMEOUT_SECONDS) as cluster:
        yield TransactionAdmin(cluster)


@transactions.command(
    "list", epilog="Example: headrace transactions list --state Ongoing --bootstrap 127.0.0.1:9092 --json"
)
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only those in this state, such as Ongoing."
)
@click.option(
    "--duration-filter",
    "longer_than_ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="Only those whose transaction has been open for longer (brokers from 3.8 on).",
)
@bootstrap_option
@json_option
def list_transactions(
    states: tuple[str, ...], longer_than_ms: int | None, bootstrap: Bootstrap, as_json: bool
) -> None:
    """Print all transactional ids with their coordinator, producer and state.

    Exit 1 when a broker did not tell of those that it coordinates.
    """
    with _asking(bootstrap) as admin:
        longer_than_ms = -1 if longer_than_ms is None else longer_than_ms
        found = admin.listed(states=states, longer_than_ms=longer_than_ms)
    _show(found.rows, "no transactions", as_json=as_json)
    found.whole()


@transactions.command(epilog="Example: headrace transactions describe orders-1 --bootstrap 127.0.0.1:9092")
@click.argument("transactional_id")
@bootstrap_option
@json_option
def describe(transactional_id: str, bootstrap: Bootstrap, as_json: bool) -> None:
    """Print a transactional id's producer, its state, since when a transaction is open and in which partitions.

    Partitions whose markers are written are none of them any more.
    """
    with _asking(bootstrap) as admin:
        found = admin.described(transactional_id)
    if found is None:
        raise click.ClickException(
            f"There is no transactional id {transactional_id!r}: `headrace transactions list` shows those there are."
        )
    row = _described_row(found)
    if as_json:
        click.echo(json.dumps(row))
        return
    for name, value in row.items():
        click.echo(
            f"{name}: {', '.join(value) if isinstance(value, list) else '-' if value is None else value}"
        )


@transactions.command(
    "describe-producers",
    epilog="Example: headrace transactions describe-producers orders 0 --bootstrap 127.0.0.1:9092",
)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--broker-id",
    type=click.IntRange(min=0),
    metavar="BROKER",
    help="Ask this replica instead of the partition's leader.",
)
@bootstrap_option
@json_option
def describe_producers(
    topic: str, partition: int, broker_id: int | None, bootstrap: Bootstrap, as_json: bool
) -> None:
    """Print the producers that a partition remembers, with the offset at which an open transaction of theirs begins."""
    with _asking(bootstrap) as admin:
        places = admin.leaders(topic, partition)
        if broker_id is not None:
            admin.require_alive(broker_id)
            places = dict.fromkeys(places, broker_id)
        rows = [_producer_row(each) for each in admin.producers(places)]
    _show(rows, "no producers", as_json=as_json)


@transactions.command(
    "find-hanging",
    epilog="Example: headrace transactions find-hanging --topic orders --bootstrap 127.0.0.1:9092",
)
@click.option("--topic", help="Look in this topic only.")
@click.option("--partition", type=click.IntRange(min=0), help="Look in this partition of the topic only.")
@broker_option
@click.option(
    "--max-transaction-timeout",
    "minutes",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Pass over those that wrote since; no less than transaction.max.timeout.ms.",
)
@bootstrap_option
@json_option
def find_hanging(
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    minutes: int,
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Print open transactions that no coordinator will end; readers of committed messages wait at them.

    `headrace transactions abort` ends one.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition: name its --topic, too.")
    with _asking(bootstrap) as admin:
        places = admin.leaders(topic, partition)
        if broker_id is not None:
            places = {place: leader for place, leader in places.items() if leader == broker_id}
        found = _hanging(admin, places, minutes * MINUTE_MS)
    _show([_hanging_row(each) for each in found], "no transaction hangs", as_json=as_json)


@transactions.command(
    epilog="Example: headrace transactions abort orders 0 --start-offset 4711 --bootstrap 127.0.0.1:9092"
)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    required=True,
    metavar="OFFSET",
    help="Where it begins, as find-hanging and describe-producers say.",
)
@bootstrap_option
@json_option
def abort(topic: str, partition: int, start_offset: int, bootstrap: Bootstrap, as_json: bool) -> None:
    """Abort a hanging transaction in one partition; what a coordinator has under way is left to it."""
    name = f"{topic}-{partition}"
    with _asking(bootstrap) as admin:
        known = admin.producers(admin.leaders(topic, partition))
        found = next((each for each in known if each.is_open and each.start_offset == start_offset), None)
        if found is None:
            raise click.ClickException(
                f"No open transaction of {name} begins at {start_offset}: "
                "`headrace transactions describe-producers` shows where they do."
            )
        for described in admin.of_producers([found.producer_id]):
            if not hanging([found], [described]):
                raise click.ClickException(
                    f"The transaction of {name} at {start_offset} does not hang: {described.transactional_id} is "
                    f"{described.state}, and its coordinator ends it."
                )
        admin.abort(found)
    say(_hanging_row(found), f"aborted the transaction of {name} at {start_offset}", as_json=as_json)


def _hanging(
    admin: TransactionAdmin, places: Mapping[PartitionKey, int], open_ms_max: int
) -> list[ProducerState]:
    waiting = overdue(admin.producers(places), round(time.time() * 1000), open_ms_max)
    return hanging(waiting, admin.of_producers(each.producer_id for each in waiting)) if waiting else []


def _described_row(found: Described) -> Row:
    now_ms = round(time.time() * 1000)
    started_ms = found.start_ms if found.start_ms > 0 else None
    return {
        "transactional_id": found.transactional_id,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.timeout_ms,
        "started_ms": started_ms,
        "open_ms": now_ms - started_ms if started_ms is not None and found.partitions else None,
        "partitions": [f"{topic}-{index}" for topic, index in found.partitions],
    }


def _producer_row(state: ProducerState) -> Row:
    return {
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "coordinator_epoch": None if state.coordinator_epoch < 0 else state.coordinator_epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp_ms": state.last_timestamp_ms,
        "start_offset": state.start_offset if state.is_open else None,
    }


def _hanging_row(state: ProducerState) -> Row:
    topic, partition = state.place
    return {"topic": topic, "partition": partition, **_producer_row(state)}


def _show(rows: list[Row], none: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
    elif rows:
        print_rows([{name: "-" if value is None else value for name, value in row.items()} for row in rows])
    else:
        click.echo(none)
