"""The `headrace` command: one lazy table of sub-commands.

A sub-command's module is imported only when it is called, so that a host with one extra installed (a broker host
without Spark, a front end without the broker) can use its own commands and gets a clear sentence for the others.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

COMMANDS: dict[str, tuple[str, str, str]] = {
    "broker": ("headrace.broker.command:broker", "broker", "Run one broker from a server.properties file."),
    "check-logs": (
        "headrace.broker.check_logs:check_logs",
        "broker",
        "Check every batch in data directories of brokers.",
    ),
    "dev": ("headrace.broker.dev:dev", "broker", "Run a ZooKeeper and some brokers in the foreground."),
    "cluster": (
        "headrace.cli.cluster:cluster",
        "broker",
        "Show how a cluster is, and whether a broker may stop.",
    ),
    "topics": (
        "headrace.cli.topics:topics",
        "producer",
        "List, describe, create, alter, delete and move topics.",
    ),
    "produce": ("headrace.cli.produce:produce", "producer", "Publish lines from standard input or a file."),
    "consume": ("headrace.cli.consume:consume", "producer", "Print messages of a topic."),
    "groups": ("headrace.cli.groups:groups", "producer", "List and describe consumer groups and their lag."),
    "transactions": (
        "headrace.cli.transactions:transactions",
        "producer",
        "List and describe transactions, find those that hang and abort them.",
    ),
    "users": (
        "headrace.cli.users:users",
        "producer",
        "List users that log in by SCRAM, add and remove them and change their passwords.",
    ),
    "quotas": (
        "headrace.cli.quotas:quotas",
        "producer",
        "List, set and remove quotas of users, client ids and addresses.",
    ),
    "acls": ("headrace.cli.acls:acls", "producer", "Show and change who may do what."),
    "registry": ("headrace.registry.command:registry", "registry", "Run the schema registry."),
    "hash-password": (
        "headrace.registry.passwords:hash_password",
        "registry",
        "Make a line of the file that says who may ask a registry or see the audit.",
    ),
    "replay": (
        "headrace.producer.replay:replay",
        "producer",
        "Publish a web server's access log as page views.",
    ),
    "publish-accounts": (
        "headrace.producer.publish_accounts:publish_accounts",
        "producer",
        "Publish the last accounts of producers that were killed.",
    ),
    "load": ("headrace.load.command:load", "load", "Load topics into warehouse tables."),
    "query": ("headrace.load.query:query", "load", "Ask the warehouse tables a question in SQL."),
    "audit": (
        "headrace.audit.commands.main:audit",
        "audit",
        "Count, reconcile and report loss, duplicates and latency.",
    ),
    "mirror": ("headrace.mirror.commands.main:mirror", "mirror", "Show, resume and promote copies."),
}


class LazyGroup(click.Group):
    """Resolves a sub-command by importing its module on demand; what cannot be printed is one line, as each failure."""

    def main(self, *args: Any, **extra: Any) -> Any:
        if sys.__stdout__ is None:
            # Who closes it wants nothing printed; and no file that is opened later may take its number.
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - as long as the process runs
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if not _is_output_lost():
                raise
            click.echo(f"Error: standard output takes nothing more: {error.strerror}.", err=True)
            sys.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        target, extra, _ = COMMANDS[cmd_name]
        module_name, attribute = target.split(":")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise click.ClickException(
                f"`headrace {cmd_name}` needs the Python module {error.name!r}: install headrace[{extra}]."
            ) from error
        command: click.Command = getattr(module, attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, _, summary) in COMMANDS.items()])


def _is_output_lost() -> bool:
    """Whether it still fails to be written; then it is dropped, for the interpreter would try it once more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace", prog_name="headrace")
def main() -> None:
    """Carry log events from several live datacenters into one warehouse and prove that none was lost.

    Example: headrace dev --brokers 2
    """
