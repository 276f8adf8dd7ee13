"""`headrace acls`: who may do what, by access control lists, like Kafka's kafka-acls.

By the Kafka protocol alone, so it serves Apache Kafka's brokers, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from headrace.broker.auth.acls import Binding, PatternType, exactly, of_title
from headrace.broker.auth.operations import CLUSTER_NAME, ResourceType
from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli.acl_admin import AclAdmin
from headrace.cli.acl_rules import Wish, addable, bindings, filters, removable, row
from headrace.cli.cluster_admin import ClusterAdmin
from headrace.cli.shared import bootstrap_option, json_option, print_rows

Command = Callable[..., Any]
RESOURCES = {
    "topics": ResourceType.TOPIC,
    "groups": ResourceType.GROUP,
    "transactional_ids": ResourceType.TRANSACTIONAL_ID,
    "delegation_tokens": ResourceType.DELEGATION_TOKEN,
    "user_principals": ResourceType.USER,
}


@click.group(epilog="Example: headrace acls list --topic orders --bootstrap 127.0.0.1:9092")
def acls() -> None:
    """Show and change who may do what."""


def _resource_options(default_pattern: str, patterns: Sequence[str]) -> Callable[[Command], Command]:
    options = [
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; * is all of them."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group."),
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID"),
        click.option("--delegation-token", "delegation_tokens", multiple=True, metavar="ID"),
        click.option("--user-principal", "user_principals", multiple=True, metavar="TYPE:NAME"),
        click.option(
            "--resource-pattern-type",
            "pattern",
            type=click.Choice(patterns, case_sensitive=False),
            default=default_pattern,
            show_default=True,
            help="How names are understood: prefixed is all that begin so.",
        ),
    ]

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _rule_options(command: Command) -> Command:
    options = [
        click.option(
            "--allow-principal", "allowed", multiple=True, metavar="TYPE:NAME", help="Who may; User:* is all."
        ),
        click.option("--deny-principal", "denied", multiple=True, metavar="TYPE:NAME", help="Who may not."),
        click.option(
            "--allow-host",
            "allowed_hosts",
            multiple=True,
            metavar="ADDRESS",
            help="From which address; else all.",
        ),
        click.option(
            "--deny-host",
            "denied_hosts",
            multiple=True,
            metavar="ADDRESS",
            help="From which address not; else all.",
        ),
        click.option(
            "--operation", "operations", multiple=True, metavar="OPERATION", help="Such as Read; else All."
        ),
        click.option(
            "--producer", "is_producer", is_flag=True, help="All that a producer of the topics needs."
        ),
        click.option(
            "--consumer", "is_consumer", is_flag=True, help="All that a consumer of topics and group needs."
        ),
        click.option(
            "--idempotent", "is_idempotent", is_flag=True, help="With --producer: for brokers before 3.0."
        ),
        click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def _asking(bootstrap: Bootstrap) -> Iterator[AclAdmin]:
    with ClusterAdmin(bootstrap, "headrace-acls") as cluster:
        yield AclAdmin(cluster)


def _wish(given: dict[str, Any]) -> Wish:
    """From the options, which it takes away; a host without whose it is would be left out, and let in whom it should not."""
    for who, hosts, word in (("allowed", "allowed_hosts", "allow"), ("denied", "denied_hosts", "deny")):
        if given.get(hosts) and not given.get(who):
            raise click.UsageError(f"--{word}-host: name its --{word}-principal, too.")
    resources = [(kind, name) for option, kind in RESOURCES.items() for name in given.pop(option)]
    if given.pop("cluster"):
        resources.append((ResourceType.CLUSTER, CLUSTER_NAME))
    pattern_type = of_title(PatternType, given.pop("pattern"))
    return Wish(resources=tuple(resources), pattern_type=pattern_type, **given)


def _show(found: Sequence[Binding], nothing: str, *, as_json: bool) -> None:
    rows = [row(binding) for binding in found]
    if as_json:
        click.echo(json.dumps(rows))
    elif rows:
        print_rows(rows)
    else:
        click.echo(nothing)


@acls.command("list", epilog="Example: headrace acls list --principal User:alice --bootstrap 127.0.0.1:9092")
@_resource_options("any", ("any", "match", "literal", "prefixed"))
@click.option("--principal", "principals", multiple=True, metavar="TYPE:NAME", help="Only entries for these.")
@bootstrap_option
@json_option
def list_acls(bootstrap: Bootstrap, as_json: bool, principals: tuple[str, ...], **given: Any) -> None:
    """Print all entries, or those for some resources or principals.

    With --resource-pattern-type match those that count for a resource of that name: its own, those of its prefixes and of *.
    """
    wanted = filters(_wish(given), principals)
    with _asking(bootstrap) as admin:
        _show(admin.listed(wanted), "no entries", as_json=as_json)


@acls.command(
    epilog="Example: headrace acls add --allow-principal User:alice --producer --topic orders --bootstrap 127.0.0.1:9092"
)
@_resource_options("literal", ("literal", "prefixed"))
@_rule_options
@bootstrap_option
@json_option
def add(bootstrap: Bootstrap, as_json: bool, dry_run: bool, **given: Any) -> None:
    """Let principals do something, or deny it to them: an entry that denies decides before all that allow.

    Prints the entries; those that are there already stay.
    """
    wanted = bindings(addable(_wish(given)))
    if not wanted:
        raise click.UsageError("Say who: --allow-principal or --deny-principal.")
    if not dry_run:
        with _asking(bootstrap) as admin:
            admin.add(wanted)
    _show(wanted, "no entries", as_json=as_json)


@acls.command(
    epilog="Example: headrace acls remove --allow-principal User:alice --producer --topic orders --bootstrap 127.0.0.1:9092"
)
@_resource_options("literal", ("any", "match", "literal", "prefixed"))
@_rule_options
@click.option(
    "--force", is_flag=True, help="Remove all entries for the resources, when no principal is named."
)
@bootstrap_option
@json_option
def remove(bootstrap: Bootstrap, as_json: bool, dry_run: bool, force: bool, **given: Any) -> None:
    """Take entries away, those that `add` with the same options would add; without a principal all for the resources.

    Prints the entries that are gone.
    """
    wish = _wish(given)
    with _asking(bootstrap) as admin:
        if wish.allowed or wish.denied:
            wanted = bindings(removable(wish))
        elif not wish.resources:
            raise click.UsageError("Name the resources whose entries shall go.")
        elif not force and not dry_run:
            raise click.UsageError("All entries for the resources would go: give --force, or a principal.")
        else:
            wanted = admin.listed(filters(wish))
        gone = admin.listed([exactly(each) for each in wanted]) if dry_run else admin.remove(wanted)
    _show(gone, "no entries", as_json=as_json)
