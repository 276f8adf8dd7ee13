"""`headrace audit`: count a datacenter's log, keep the ledger, write the report."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from headrace.audit import report as reports
from headrace.audit import state
from headrace.audit.counter import FAILURES, LogCounter, Publisher, PublishError
from headrace.audit.latency import SPANS
from headrace.audit.ledger import LATE_AFTER_MS, ForeignLedgerError, Ledger
from headrace.audit.metrics import AuditMetrics
from headrace.audit.reconcile import reconcile
from headrace.audit.records import CounterTier
from headrace.audit.topics import OfflineTopics
from headrace.audit.warehouse import Warehouse
from headrace.audit.windows import WINDOW_SIZE_MS
from headrace.broker.errors import KafkaError
from headrace.broker.structured_log import configure, get_logger
from headrace.load.options import warehouse_options
from headrace.load.tables import WarehouseError, open_catalog
from headrace.load.wire_client import Client, ConnectionFailedError, parse_bootstrap

SAVE_SECONDS: Final = 15.0
RETRY_SECONDS: Final = 1.0
READ_FAILURES: Final = (ConnectionFailedError, KafkaError, WarehouseError, OSError)
"""What reading may meet while brokers restart and loads tidy up their tables; the next try may do better."""
REPORT_ATTEMPTS_MAX: Final = 3

log = get_logger(__name__)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def audit() -> None:
    """Prove that what was published arrived: count every tier, reconcile, report.

    Example: headrace audit report --bootstrap 127.0.3.1:9092 --warehouse var/warehouse --output var/report
    """


def _bootstrap(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        parse_bootstrap(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


_bootstrap_option: Final = click.option(
    "--bootstrap",
    required=True,
    metavar="HOST:PORT,…",
    callback=_bootstrap,
    help="Brokers of the cluster: the counted one, or the offline one.",
)
_late_option: Final = click.option(
    "--late-after",
    "late_after_seconds",
    type=click.FloatRange(min=0.001),
    default=LATE_AFTER_MS / 1000,
    show_default=True,
    help="Seconds behind its own time after which an event's arrival is late.",
)


@audit.command()
@_bootstrap_option
@click.option("--datacenter", required=True, help="Name of the datacenter whose log is counted.")
@click.option(
    "--tier", type=click.Choice(["live", "offline"]), required=True, help="What that datacenter is."
)
@click.option("--topics", required=True, metavar="NAME,…", help="Topics to count, by whole name.")
@click.option(
    "--interval", default=1.0, show_default=True, type=click.FloatRange(min=0.05), help="Seconds per round."
)
@click.option("--once", is_flag=True, help="Count what is there now and end.")
def count(
    bootstrap: str, datacenter: str, tier: CounterTier, topics: str, interval: float, once: bool
) -> None:
    """Count a cluster's own log and publish the counts to its topic headrace.counts, until stopped.

    Example: headrace audit count --bootstrap 127.0.1.1:9092 --datacenter dc-east --tier live --topics pageviews
    """
    configure()
    wanted = [name.strip() for name in topics.split(",") if name.strip()]
    if not wanted:
        raise click.BadParameter("name at least one topic.", param_hint="--topics")
    stop = _stop_on_signals()
    client = Client(bootstrap, client_id="headrace-counter")
    try:
        counter = _retried(
            lambda: LogCounter(
                client,
                Publisher(bootstrap),
                tier=tier,
                datacenter=datacenter,
                topics=wanted,
                window_size_ms=WINDOW_SIZE_MS,
                clock_ms=now_ms,
            ),
            stop,
        )
        if counter is not None:
            log.info("counting", tier=tier, datacenter=datacenter, topics=",".join(wanted))
            _count_on(counter, interval, once, stop)
    except PublishError as error:
        raise click.ClickException(
            f"{error}; start the counter again, it goes on from its last record"
        ) from error
    finally:
        client.close()


def _retried(make: Callable[[], LogCounter], stop: threading.Event) -> LogCounter | None:
    """Wait for the cluster to answer; None when told to stop before."""
    while not stop.is_set():
        try:
            return make()
        except FAILURES as error:
            log.warning("waiting for the cluster", reason=error)
            stop.wait(RETRY_SECONDS)
    return None


def _count_on(counter: LogCounter, interval: float, once: bool, stop: threading.Event) -> None:
    while not stop.is_set():
        begun = time.monotonic()
        try:
            has_more = counter.round()
        except FAILURES as error:
            log.warning("round incomplete", reason=error)
            stop.wait(RETRY_SECONDS)
            continue
        if once and not has_more:
            return
        if not has_more:
            stop.wait(max(0.0, interval - (time.monotonic() - begun)))


class Auditor:
    """The ledger with what feeds it."""

    def __init__(
        self, bootstrap: str, warehouse: str, properties: dict[str, str], directory: Path | None, late_ms: int
    ) -> None:
        self._topics = OfflineTopics(Client(bootstrap, client_id="headrace-audit"))
        self._warehouse = Warehouse(open_catalog(warehouse, properties))
        self.ledger = state.load(directory, late_ms)

    def update(self, now_ms: int) -> int:
        """Read what is new; returns how much. A ledger of another cluster is begun anew."""
        try:
            number = self._read()
        except ForeignLedgerError as error:
            log.warning("the ledger is built anew", reason=error)
            self.ledger = Ledger(self.ledger.late_after_ms)
            number = self._read()
        self.ledger.settle(now_ms)
        return number

    def _read(self) -> int:
        return self._topics.read_into(self.ledger) + self._warehouse.read_into(self.ledger)


@audit.command()
@_bootstrap_option
@warehouse_options
@_late_option
@click.option(
    "--state",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder of the ledger.",
)
@click.option(
    "--interval", default=10.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds per round."
)
@click.option("--metrics-listener", metavar="HOST:PORT", help="Serve Prometheus metrics there.")
def watch(
    bootstrap: str,
    warehouse: str,
    catalog_properties: dict[str, str],
    late_after_seconds: float,
    directory: Path,
    interval: float,
    metrics_listener: str | None,
) -> None:
    """Keep the ledger of all tiers up to date in the offline datacenter, until stopped.

    Example: headrace audit watch --bootstrap 127.0.3.1:9092 --warehouse var/warehouse --state var/audit
    """
    configure()
    stop = _stop_on_signals()
    auditor = _auditor(bootstrap, warehouse, catalog_properties, directory, late_after_seconds)
    metrics = _metrics(metrics_listener)
    log.info("watching")
    saved = time.monotonic()
    changed = 0
    while not stop.is_set():
        try:
            changed += auditor.update(now_ms())
        except READ_FAILURES as error:
            log.warning("round incomplete", reason=error)
            stop.wait(RETRY_SECONDS)
            continue
        if metrics is not None:
            metrics.observe(reconcile(auditor.ledger, now_ms()), auditor.ledger)
        if changed and time.monotonic() - saved >= SAVE_SECONDS:
            state.save(auditor.ledger, directory)
            saved, changed = time.monotonic(), 0
        stop.wait(interval)
    state.save(auditor.ledger, directory)


@audit.command()
@_bootstrap_option
@warehouse_options
@_late_option
@click.option(
    "--state",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the ledger that `audit watch` keeps; without it everything is read again.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder for report.json and report.html.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def report(
    bootstrap: str,
    warehouse: str,
    catalog_properties: dict[str, str],
    late_after_seconds: float,
    directory: Path | None,
    output: Path,
    as_json: bool,
) -> None:
    """Reconcile all tiers and write report.json and report.html; exit 0 only when everything is complete.

    Example: headrace audit report --bootstrap 127.0.3.1:9092 --warehouse var/warehouse --output var/report
    """
    auditor = _auditor(bootstrap, warehouse, catalog_properties, directory, late_after_seconds)
    _read_all(auditor)
    auditor.ledger.latencies.join(now_ms(), is_last=True)
    outcome = reconcile(auditor.ledger, now_ms())
    found = reports.as_json(outcome, auditor.ledger, now_ms())
    _write(output, found, auditor.ledger)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        Console().print(f"{found['verdict']}: {reports.sentence(found)}", highlight=False, soft_wrap=True)
    sys.exit(0 if outcome.verdict == "complete" else 1)


def _read_all(auditor: Auditor) -> None:
    for attempt in range(1, REPORT_ATTEMPTS_MAX + 1):
        try:
            auditor.update(now_ms())
            return
        except (ConnectionFailedError, KafkaError) as error:
            raise click.ClickException(f"the offline cluster does not answer: {error}") from error
        except (WarehouseError, OSError) as error:
            if attempt == REPORT_ATTEMPTS_MAX:
                raise click.ClickException(f"the warehouse cannot be read: {error}") from error


def _write(output: Path, found: dict[str, Any], ledger: Ledger) -> None:
    from headrace.audit.page import render

    output.mkdir(parents=True, exist_ok=True)
    contents = {
        "report.html": render(found, {span: ledger.latencies.histogram(span) for span in SPANS}),
        "report.json": json.dumps(found, indent=2) + "\n",
    }
    for name, text in contents.items():
        temporary = output / f".{name}.new"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(output / name)


def _auditor(
    bootstrap: str,
    warehouse: str,
    properties: dict[str, str],
    directory: Path | None,
    late_after_seconds: float,
) -> Auditor:
    try:
        return Auditor(bootstrap, warehouse, properties, directory, round(late_after_seconds * 1000))
    except WarehouseError as error:
        raise click.ClickException(str(error)) from error


def _metrics(listener: str | None) -> AuditMetrics | None:
    if listener is None:
        return None
    metrics = AuditMetrics()
    try:
        ((host, port),) = parse_bootstrap(listener)
        metrics.serve(host, port)
    except (ValueError, OSError) as error:
        raise click.BadParameter(str(error), param_hint="--metrics-listener") from error
    return metrics


def _stop_on_signals() -> threading.Event:
    """Let the round in progress finish, then end."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
