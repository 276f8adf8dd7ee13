"""`headrace groups`: list, describe, reset and delete consumer groups, through the Kafka admin protocol."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from rich.table import Table

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.settings_file import client_settings
from headrace.broker.console import console
from headrace.cli import group_lag, group_reset
from headrace.cli.asking import admin_client, asked, reason_of
from headrace.cli.coordinator import await_coordinator
from headrace.cli.shared import TIMEOUT_SECONDS, bootstrap_option, json_option, print_rows, some_missing

NO_GROUP, WITHOUT_MEMBERS = "DEAD", "EMPTY"


@click.group(epilog="Example: headrace groups describe my-group --bootstrap 127.0.0.1:9092")
def groups() -> None:
    """List and describe consumer groups and their lag, reset and delete those without members."""


@groups.command("list", epilog="Example: headrace groups list --bootstrap 127.0.0.1:9092 --json")
@bootstrap_option
@json_option
def list_groups(bootstrap: Bootstrap, as_json: bool) -> None:
    """Print all groups with their state; exit 1 when a broker did not tell of those that it coordinates."""
    client = admin_client(bootstrap)
    found = asked("list groups", client.list_consumer_groups(request_timeout=TIMEOUT_SECONDS).result)
    rows = [
        {"group": each.group_id, "state": each.state.name, "simple": each.is_simple_consumer_group}
        for each in sorted(found.valid, key=lambda each: each.group_id)
    ]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        _print_table(("group", "state"), [(row["group"], row["state"]) for row in rows], "no groups")
    if found.errors:
        raise some_missing("list groups", reason_of(found.errors[0]))


@groups.command("describe", epilog="Example: headrace groups describe my-group --bootstrap 127.0.0.1:9092")
@click.argument("group")
@bootstrap_option
@json_option
def describe(group: str, bootstrap: Bootstrap, as_json: bool) -> None:
    """Print a group's state and, for each partition of its topics, offset, log end, lag and member; then members without any.

    The lag of a partition without a committed offset is unknown, unless it is empty.
    """
    await_coordinator(bootstrap, group)
    client = admin_client(bootstrap)
    described = _described(client, group)
    committed = _committed(client, group)
    if described.state.name == NO_GROUP and not committed:
        raise click.ClickException(
            f"There is no group {group!r}: `headrace groups list` shows those there are."
        )
    owners = {
        (partition.topic, partition.partition): member
        for member in described.members
        for partition in member.assignment.topic_partitions
    }
    partitions = group_lag.rows_of(client, committed, owners)
    answer = {
        "group": group,
        "state": described.state.name,
        "assignor": described.partition_assignor,
        "members": [_member(member) for member in described.members],
        "partitions": partitions,
        "lag": group_lag.total(partitions),
    }
    if as_json:
        click.echo(json.dumps(answer))
    else:
        _print_description(answer)


@groups.command(
    "reset",
    epilog="Example: headrace groups reset my-group --to 2026-11-28T06:00 --topic orders --bootstrap 127.0.0.1:9092",
)
@click.argument("group")
@click.option(
    "--to",
    "text",
    required=True,
    metavar="PLACE",
    help="earliest, latest, an offset, or a time such as 2026-11-28T06:00 (in UTC, where it says no other): the first message "
    "from then on.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="A topic, all its partitions; without any, the partitions that the group has committed.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@bootstrap_option
@json_option
def reset(
    group: str, text: str, topics: tuple[str, ...], dry_run: bool, bootstrap: Bootstrap, as_json: bool
) -> None:
    """Choose where a group without members goes on. An offset beyond a log becomes its nearer end."""
    try:
        place = group_reset.place_of(text)
    except ValueError:
        raise click.UsageError(
            f"--to {text}: write earliest, latest, an offset, or a time such as 2026-11-28T06:00."
        ) from None
    await_coordinator(bootstrap, group)
    client = admin_client(bootstrap)
    described = _described(client, group)
    if described.state.name not in (NO_GROUP, WITHOUT_MEMBERS):
        raise click.ClickException(
            f"group {group} has members (it is {described.state.name}): stop them; nothing was changed."
        )
    committed = _committed(client, group)
    keys = group_reset.chosen(client, topics, committed)
    if not keys:
        raise click.ClickException(f"group {group} has committed nothing: name its topics with --topic.")
    offsets = group_reset.offsets_at(client, keys, place)
    if not dry_run:
        group_reset.commit(client, group, offsets)
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "before": committed.get((topic, partition)),
            "offset": offset,
        }
        for (topic, partition), offset in offsets.items()
    ]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        print_rows([{**row, "before": "-" if row["before"] is None else row["before"]} for row in rows])


@groups.command("delete", epilog="Example: headrace groups delete my-group --bootstrap 127.0.0.1:9092")
@click.argument("group")
@bootstrap_option
def delete(group: str, bootstrap: Bootstrap) -> None:
    """Delete a group without members, with its offsets."""
    await_coordinator(bootstrap, group)
    client = admin_client(bootstrap)
    asked(
        f"delete group {group}",
        client.delete_consumer_groups([group], request_timeout=TIMEOUT_SECONDS)[group].result,
    )
    click.echo(f"deleted {group}")


@groups.command(
    "migrate",
    epilog="Example: headrace groups migrate my-group --bootstrap 127.0.0.1:9092 --zookeeper 127.0.0.1:2181",
)
@click.argument("group")
@bootstrap_option
@click.option("--zookeeper", required=True, metavar="HOST:PORT[/CHROOT]", help="The cluster's ZooKeeper.")
@click.option(
    "--zk-tls-config-file",
    "zookeeper_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Properties of how ZooKeeper lets in, as a broker has them: zookeeper.ssl.… and headrace.zookeeper.jaas.file.",
)
@json_option
def migrate(
    group: str, bootstrap: Bootstrap, zookeeper: str, zookeeper_file: Path | None, as_json: bool
) -> None:
    """Move a group's offsets from ZooKeeper, where old consumers commit, to __consumer_offsets.

    Stop the group's consumers first. The offsets leave ZooKeeper once the brokers have them; those of partitions that
    are no more are only dropped.
    """
    from headrace.broker.zk.access import ZooKeeperAccess
    from headrace.cli import group_migration

    try:
        access = ZooKeeperAccess.of(client_settings(zookeeper_file), os.environ)
    except ValueError as error:
        raise click.UsageError(f"--zk-tls-config-file: {error}") from None
    moved, dropped = group_migration.migrate(bootstrap, zookeeper, access, group)
    if as_json:
        rows = [{"topic": t, "partition": p, "offset": offset} for (t, p), offset in sorted(moved.items())]
        click.echo(json.dumps({"group": group, "moved": rows, "dropped": len(dropped)}))
    else:
        click.echo(
            f"moved {len(moved)} offsets of {group}, dropped {len(dropped)} of partitions that are no more"
        )


def _described(client: AdminClient, group: str) -> Any:
    """The group's state and members; one that is not there is dead."""
    return asked(
        f"describe group {group}",
        client.describe_consumer_groups([group], request_timeout=TIMEOUT_SECONDS)[group].result,
    )


def _committed(client: AdminClient, group: str) -> dict[tuple[str, int], int]:
    """The group's committed offsets by partition."""
    wanted = [ConsumerGroupTopicPartitions(group)]
    found = asked(
        f"read offsets of group {group}",
        client.list_consumer_group_offsets(wanted, request_timeout=TIMEOUT_SECONDS)[group].result,
    )
    return {(each.topic, each.partition): each.offset for each in found.topic_partitions if each.offset >= 0}


def _member(member: Any) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.group_instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": len(member.assignment.topic_partitions),
    }


def _print_description(answer: dict[str, Any]) -> None:
    state = f"{answer['group']}: {answer['state']}, {len(answer['members'])} members, {group_lag.sentence(answer['partitions'])}"
    click.echo(f"{state}, assignor {answer['assignor']}" if answer["assignor"] else state)
    columns = ("topic", "partition", "offset", "end", "lag", "member")
    idle = [{"member": each["member"]} for each in answer["members"] if not each["partitions"]]
    rows = [
        tuple("-" if row.get(name) is None else str(row[name]) for name in columns)
        for row in (*answer["partitions"], *idle)
    ]
    _print_table(columns, rows, "no partitions")


def _print_table(columns: tuple[str, ...], rows: list[tuple[Any, ...]], none: str) -> None:
    if not rows:
        click.echo(none)
        return
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console(markup=False).print(table)
