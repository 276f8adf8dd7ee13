"""`headrace audit`: count a datacenter's log, keep the ledger, write the report.

A sub-command's module is imported only when it is called: a counter needs neither the ledger nor the warehouse, whose
libraries take half a CPU-second to import.
"""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "accept": "headrace.audit.commands.accept",
    "count": "headrace.audit.commands.count",
    "groups": "headrace.audit.commands.groups",
    "recount": "headrace.audit.commands.recount",
    "reload": "headrace.audit.commands.reload",
    "reopen": "headrace.audit.commands.accept",
    "report": "headrace.audit.commands.watch",
    "serve": "headrace.audit.commands.serve",
    "status": "headrace.audit.commands.status",
    "watch": "headrace.audit.commands.watch",
}


class _LazyCommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        except ModuleNotFoundError as error:
            raise click.ClickException(
                f"`headrace audit {cmd_name}` needs the Python module {error.name!r}: install headrace[audit]."
            ) from error
        return command


@click.group(cls=_LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
def audit() -> None:
    """Prove that what was published arrived: count every tier, reconcile, report.

    Example: headrace audit report --bootstrap 127.0.3.1:9092 --warehouse var/warehouse --output var/report
    """
