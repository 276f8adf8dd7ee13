"""`headrace audit reload`: load a past window again from the offline log, in place of what the table has of it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from headrace.audit.commands.options import bootstrap_option
from headrace.audit.period import Period
from headrace.audit.reload import Log, NotReloadedError, reload_window
from headrace.audit.report import time_text
from headrace.audit.windows import WINDOW_SIZE_MS
from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import KafkaError
from headrace.broker.moment import Moment
from headrace.events.registry_address import RegistryAddress
from headrace.events.registry_option import registry_option
from headrace.load.log_client import LogClient
from headrace.load.options import warehouse_options
from headrace.load.source import StandstillError
from headrace.load.tables import WarehouseError, open_present


@click.command()
@click.option(
    "--topic", required=True, metavar="DATACENTER.TOPIC", help="The topic, as the offline cluster calls it."
)
@click.option("--window", "at_ms", type=Moment(), required=True, help="A time in the window.")
@registry_option("Schema registries of the offline datacenter.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@bootstrap_option
@warehouse_options
def reload(
    topic: str,
    at_ms: int,
    registry: RegistryAddress,
    is_dry: bool,
    as_json: bool,
    bootstrap: Bootstrap,
    warehouse: str,
    catalog_properties: dict[str, str],
) -> None:
    """Load a window of a topic again: its rows in the table are replaced, in one commit, by those that the offline log has.

    Refused where retention may have taken some of it. Reads all that the log still has of the topic.

    Example: headrace audit reload --dry-run --topic dc-east.pageviews --window 2026-01-31T23:59:40Z
    --bootstrap 127.0.3.1:9092 --registry http://127.0.3.12:8081 --warehouse var/warehouse
    """
    start_ms = at_ms - at_ms % WINDOW_SIZE_MS
    period = Period(start_ms, start_ms + WINDOW_SIZE_MS)
    client = LogClient(bootstrap, client_id="headrace-audit")
    try:
        catalog = open_present(warehouse, catalog_properties)
        found = reload_window(catalog, client, Log(bootstrap, registry, topic), period, is_dry=is_dry)
    except (
        NotReloadedError,
        StandstillError,
        ConnectionFailedError,
        KafkaError,
        WarehouseError,
        OSError,
    ) as error:
        raise click.ClickException(f"the window is not loaded again: {error}.") from error
    finally:
        client.close()
    window = {"topic": topic, "since": time_text(period.since_ms), "until": time_text(period.until_ms)}
    if as_json:
        click.echo(json.dumps({**window, **asdict(found), "dry_run": is_dry}))
        return
    would = "would be" if is_dry else "are"
    click.echo(
        f"{topic}, {window['since']} to {window['until']}: {found.rows_before:,} rows {would} {found.rows_after:,}, "
        f"{found.added:,} added and {found.removed:,} removed"
    )
