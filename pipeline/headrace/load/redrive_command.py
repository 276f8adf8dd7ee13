"""`headrace load redrive`: load dead letters again once their cause is mended."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from headrace.broker.client.bootstrap_option import config_option_of
from headrace.events.registry_address import RegistryAddress
from headrace.events.registry_option import registry_option
from headrace.load import redrive as letters
from headrace.load.missing_rows import Source
from headrace.load.options import warehouse_options
from headrace.load.redrive import NotRedrivenError, Outcome, Outcomes, Wanted
from headrace.load.registry import SchemaRegistry
from headrace.load.tables import WarehouseError, open_present


@click.command(
    epilog="Example: headrace load redrive pageviews --dry-run --registry http://127.0.3.12:8081 --warehouse var/warehouse"
)
@click.argument("topics", nargs=-1)
@click.option("--datacenter", help="Dead letters of this live datacenter alone.")
@registry_option("Schema registries; the first that answers is asked what an id means in the letter's topic.")
@config_option_of("--registry")
@warehouse_options
@click.option(
    "--dry-run", "is_dry", is_flag=True, help="Say what would become of the letters, and change nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def redrive(
    topics: tuple[str, ...],
    datacenter: str | None,
    registry: RegistryAddress,
    warehouse: str,
    catalog_properties: dict[str, str],
    is_dry: bool,
    as_json: bool,
) -> None:
    """Give dead letters of TOPICS (of all, where none is named) their rows once they decode.

    A letter that decodes now becomes the row that the load would have made of it, and is no letter any longer; the others
    stay, with the reason of today. It may run beside the load and beside another redrive, and be killed: each letter gets one
    row. A batch that does not parse, and a record whose headers do not parse, stay letters.
    """
    wanted = Wanted(datacenter=datacenter, topics=frozenset(topics))
    try:
        catalog = open_present(warehouse, catalog_properties)
        found = letters.redrive(catalog, SchemaRegistry(registry), wanted, is_dry=is_dry)
    except (NotRedrivenError, WarehouseError) as error:
        raise click.ClickException(f"{error}.") from error
    if as_json:
        click.echo(
            json.dumps({"topics": [_facts(*item) for item in sorted(found.items())], "dry_run": is_dry})
        )
    else:
        _show(found, is_dry)


def _facts(source: Source, outcome: Outcome) -> dict[str, Any]:
    return {
        "datacenter": source.datacenter,
        "topic": source.topic,
        "rows": outcome.rows.total(),
        "had_rows": outcome.had_rows,
        "stay": outcome.stay.total(),
        "reasons": [
            {"reason": reason, "rows": outcome.rows[reason], "stay": outcome.stay[reason]}
            for reason in sorted(outcome.rows | outcome.stay)
        ],
    }


def _show(found: Outcomes, is_dry: bool) -> None:
    table = Table(box=None)
    for name in (
        "topic",
        "reason",
        "would get rows" if is_dry else "got rows",
        "would stay" if is_dry else "stay",
    ):
        table.add_column(name)
    for source, outcome in sorted(found.items()):
        for reason in sorted(outcome.rows | outcome.stay):
            table.add_row(source.name, reason, f"{outcome.rows[reason]:,}", f"{outcome.stay[reason]:,}")
    Console().print(table if found else "There are no dead letters of these topics.")
    for source, outcome in sorted(found.items()):
        if outcome.had_rows:
            click.echo(f"{source.name}: {outcome.had_rows:,} had their rows already")
