"""`headrace quotas`: how much of the brokers users, client ids and addresses may use.

By the Kafka protocol alone, so it serves Apache Kafka's brokers, too. A quota holds on all brokers, and each counts for itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.cluster_admin import ClusterAdmin
from headrace.cli.quota_admin import KEYS, Entity, QuotaAdmin, entity_of, words_of
from headrace.cli.shared import bootstrap_option, json_option, print_rows, say

F = TypeVar("F", bound=Callable[..., Any])
CLIENT_ID_NAME = "headrace-quotas"


def entity_options(command: F) -> F:
    """Which entity; each of these options but those of addresses goes with each other."""
    for option, text in reversed(
        (
            ("--user", "A user, by the name of its principal without its type."),
            ("--default-user", "All users without quotas of their own."),
            ("--client", "A client id."),
            ("--default-client", "All client ids without quotas of their own."),
            ("--ip", "An IPv4 address that clients connect from, or a host's name."),
            ("--default-ip", "All addresses without quotas of their own."),
        )
    ):
        name = option.removeprefix("--").replace("-", "_")
        if option.startswith("--default"):
            command = click.option(option, name, is_flag=True, help=text)(command)
        else:
            command = click.option(option, name, metavar="NAME", help=text)(command)
    return command


@click.group(epilog="Example: headrace quotas list --bootstrap 127.0.0.1:9092")
def quotas() -> None:
    """List, set and remove quotas of users, client ids and addresses."""


@quotas.command("list", epilog="Example: headrace quotas list --user alice --bootstrap 127.0.0.1:9092 --json")
@entity_options
@bootstrap_option
@json_option
def list_quotas(bootstrap: Bootstrap, as_json: bool, **named: Any) -> None:
    """Print all quotas, or those of the entities that are named and of those more specific."""
    wanted = entity_of(named)
    with ClusterAdmin(bootstrap, CLIENT_ID_NAME) as cluster:
        found = QuotaAdmin(cluster).listed(wanted)
    rows = [{**entity, "quotas": dict(sorted(values.items()))} for entity, values in found]
    if as_json:
        click.echo(json.dumps(rows))
    elif rows:
        print_rows([_row(entity, values) for entity, values in found])
    else:
        click.echo("No quotas.")


def _row(entity: Entity, values: Mapping[str, float]) -> dict[str, Any]:
    return {
        "whose": words_of(entity),
        "quotas": ", ".join(f"{key}={value:.15g}" for key, value in sorted(values.items())),
    }


@quotas.command(
    "set",
    epilog="Example: headrace quotas set producer_byte_rate=1048576 --user alice --default-client "
    "--bootstrap 127.0.0.1:9092",
)
@click.argument("settings", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@entity_options
@bootstrap_option
@json_option
def set_quotas(settings: tuple[str, ...], bootstrap: Bootstrap, as_json: bool, **named: Any) -> None:
    """Set quotas of one entity.

    \b
    producer_byte_rate         bytes a second that its clients may send
    consumer_byte_rate         bytes a second that they may fetch
    request_percentage         time of one processor, in percent
    controller_mutation_rate   partitions a second, created and deleted
    connection_creation_rate   connections a second, of an address
    """
    entity = _one(named)
    _check_address(entity)
    values = dict(map(_setting, settings))
    if len(values) < len(settings):
        raise click.UsageError("A quota is set twice: give each of them one value.")
    with ClusterAdmin(bootstrap, CLIENT_ID_NAME) as cluster:
        QuotaAdmin(cluster).alter(entity, values)
    result = {**entity, "quotas": values}
    say(result, f"Set {', '.join(settings)} of {words_of(entity)}.", as_json=as_json)


@quotas.command(
    epilog="Example: headrace quotas remove producer_byte_rate --user alice --bootstrap 127.0.0.1:9092"
)
@click.argument("keys", nargs=-1, metavar="QUOTA...")
@entity_options
@bootstrap_option
@json_option
def remove(keys: tuple[str, ...], bootstrap: Bootstrap, as_json: bool, **named: Any) -> None:
    """Remove quotas of one entity, or all that it has."""
    entity = _one(named)
    for key in keys:
        _check_key(key)
    with ClusterAdmin(bootstrap, CLIENT_ID_NAME) as cluster:
        admin = QuotaAdmin(cluster)
        there = admin.of(entity)
        wanted = tuple(key for key in keys or there if key in there)
        if wanted:
            admin.alter(entity, dict.fromkeys(wanted))
    absent = [key for key in keys if key not in wanted]
    told = [f"Removed {', '.join(wanted)} of {words_of(entity)}."] if wanted else []
    if absent:
        told.append(f"There was no {', '.join(absent)} of {words_of(entity)}.")
    elif not wanted:
        told.append(f"There were no quotas of {words_of(entity)}.")
    say({**entity, "removed": list(wanted)}, " ".join(told), as_json=as_json)


def _one(named: Mapping[str, Any]) -> Entity:
    entity = entity_of(named)
    if not entity:
        raise click.UsageError("Whose quotas? Name a --user, a --client or an --ip, or --default-… of these.")
    return entity


def _check_address(entity: Entity) -> None:
    address = entity.get("ip")
    if address is not None and ":" in address:
        raise click.UsageError(
            f"--ip {address}: neither headrace's brokers nor Apache Kafka's of this version keep a quota of an IPv6 address; "
            "--default-ip counts for it."
        )


def _setting(text: str) -> tuple[str, float]:
    key, separator, value = text.partition("=")
    _check_key(key)
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not separator or not 0 <= number < float("inf"):
        raise click.UsageError(f"{text}: write QUOTA=VALUE, where VALUE is a number from 0.")
    return key, number


def _check_key(key: str) -> None:
    if key not in KEYS:
        raise click.UsageError(f"There is no quota {key!r}: there are {', '.join(KEYS)}.")
