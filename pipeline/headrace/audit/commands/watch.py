"""`headrace audit watch` and `headrace audit report`: keep the ledger of all tiers, and say what it says."""

from __future__ import annotations

import functools
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from headrace.audit import report as reports
from headrace.audit.acceptances import open_verdict
from headrace.audit.auditor import Auditor
from headrace.audit.commands.choice import Choice, chosen
from headrace.audit.commands.further_options import further_options
from headrace.audit.commands.options import (
    RETRY_SECONDS,
    bootstrap_option,
    stop_on_signals,
)
from headrace.audit.further import Further
from headrace.audit.judging.watermark import SILENT_AFTER_MS
from headrace.audit.latency import SPANS
from headrace.audit.ledger.garbage import collect_seldom
from headrace.audit.ledger.ledger import LATE_AFTER_MS, Ledger
from headrace.audit.metrics import AuditMetrics
from headrace.audit.outcome import Outcome
from headrace.audit.period import END_MS, Period
from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import KafkaError
from headrace.broker.moment import Moment, now_ms
from headrace.broker.structured_log import configure, get_logger
from headrace.load.options import listener_option, make_folder, warehouse_options
from headrace.load.pages import serve_pages
from headrace.load.rounds import Rounds
from headrace.load.tables import WarehouseError, check_present, is_present

SAVE_SECONDS: Final = 15.0
SAVE_PAUSES: Final = 20
"""After the ledger was saved it is not for so many times as long: what is not saved is read again."""
ARCHIVE_SECONDS: Final = 600.0
"""What is settled goes to the tables so often: each time makes a file of each."""
READ_FAILURES: Final = (ConnectionFailedError, KafkaError, WarehouseError, OSError)
"""What reading may meet while brokers restart and loads tidy up their tables; the next try may do better."""
REPORT_ATTEMPTS_MAX: Final = 3

REPORTED_MS: Final = 86_400_000
"""The time before its end that a report is about, unless it is told."""

logger = get_logger(__name__)

late_option: Final = click.option(
    "--late-after",
    "late_after_seconds",
    type=click.FloatRange(min=0.001),
    default=LATE_AFTER_MS / 1000,
    show_default=True,
    help="Seconds behind its own time after which an event's arrival is late.",
)
silent_option: Final = click.option(
    "--silent-after",
    "silent_after_seconds",
    type=click.FloatRange(min=0.001),
    default=SILENT_AFTER_MS / 1000,
    show_default=True,
    help="Seconds without an account after which a producer holds the watermark no longer; its last windows are unknown.",
)

kept_ledger_option: Final = click.option(
    "--state",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the ledger that `audit watch` keeps; without it everything is read again.",
)


def open_auditor(
    bootstrap: Bootstrap,
    warehouse: str,
    properties: dict[str, str],
    directory: Path | None,
    late_after_seconds: float,
    further: Sequence[Further] = (),
) -> Auditor:
    """The auditor of a warehouse that is there and of further ones, with the ledgers of a folder if one is named."""
    try:
        collect_seldom()
        first = Further(name="", location=warehouse, properties=properties)
        return Auditor(bootstrap, first, directory, round(late_after_seconds * 1000), further)
    except WarehouseError as error:
        raise click.ClickException(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAuditor:
    """Opens the auditor that the options name; raises ClickException."""

    bootstrap: Bootstrap
    warehouse: str
    properties: dict[str, str]
    directory: Path | None
    late_after_seconds: float
    further: tuple[Further, ...]

    def __call__(self) -> Auditor:
        return open_auditor(
            self.bootstrap,
            self.warehouse,
            self.properties,
            self.directory,
            self.late_after_seconds,
            self.further,
        )

    def check_warehouses(self) -> None:
        """Refuse warehouses that are not there, without opening any."""
        try:
            check_present(self.warehouse, self.properties)
            for each in self.further:
                check_present(each.location, each.properties)
        except WarehouseError as error:
            raise click.ClickException(str(error)) from error


def reader_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what names a ledger to read, passed as `opened`, and `--silent-after`."""

    @functools.wraps(command)
    def naming(
        *arguments: Any,
        bootstrap: Bootstrap,
        warehouse: str,
        catalog_properties: dict[str, str],
        late_after_seconds: float,
        directory: Path | None,
        further: tuple[Further, ...],
        **options: Any,
    ) -> Any:
        opened = OpenAuditor(
            bootstrap=bootstrap,
            warehouse=warehouse,
            properties=catalog_properties,
            directory=directory,
            late_after_seconds=late_after_seconds,
            further=further,
        )
        return command(*arguments, opened=opened, **options)

    named = further_options(late_option(silent_option(kept_ledger_option(naming))))
    return bootstrap_option(warehouse_options(named))


@click.command()
@bootstrap_option
@warehouse_options
@further_options
@late_option
@silent_option
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
@listener_option
def watch(
    bootstrap: Bootstrap,
    warehouse: str,
    catalog_properties: dict[str, str],
    further: tuple[Further, ...],
    late_after_seconds: float,
    silent_after_seconds: float,
    directory: Path,
    interval: float,
    metrics_listener: str | None,
) -> None:
    """Keep the ledger of all tiers up to date in the offline datacenter, until stopped.

    Waits for the warehouse, which the load makes.

    Example: headrace audit watch --bootstrap 127.0.3.1:9092 --warehouse var/warehouse --state var/audit
    """
    configure()
    stop = stop_on_signals()
    make_folder(directory, "--state")
    rounds = Rounds("headrace_audit", interval)
    metrics = AuditMetrics(directory)
    serve_pages(metrics_listener, metrics.registry, rounds)
    if not _await_warehouse(warehouse, catalog_properties, rounds, stop):
        return
    auditor = open_auditor(bootstrap, warehouse, catalog_properties, directory, late_after_seconds, further)
    logger.info("watching")
    saved = archived = time.monotonic()
    changed, save_seconds = 0, SAVE_SECONDS
    while not stop.is_set():
        begun = time.monotonic()
        try:
            changed += auditor.update(now_ms())
        except READ_FAILURES as error:
            rounds.failed(error)
            stop.wait(RETRY_SECONDS)
            continue
        auditor.settle(now_ms(), silent_after_seconds)
        outcome = auditor.outcome(now_ms(), silent_after_seconds)
        if metrics_listener is not None:
            metrics.observe(outcome, auditor.ledger, now_ms())
            metrics.observe_reading(auditor.records, auditor.files, auditor.lag, len(auditor.ledger.unread))
        rounds.ended(time.monotonic() - begun, auditor.hindrance)
        if changed and (begun := time.monotonic()) - saved >= save_seconds:
            is_due = begun - archived >= ARCHIVE_SECONDS
            auditor.keep(directory, with_settled=is_due)
            saved, changed = time.monotonic(), 0
            save_seconds = max(SAVE_SECONDS, SAVE_PAUSES * (saved - begun))
            archived = saved if is_due else archived
        stop.wait(interval)
    auditor.keep(directory, with_settled=True)


@click.command()
@reader_options
@click.option(
    "--since",
    "since_ms",
    type=Moment(),
    help="Judge the windows from this time on: as 2026-01-31T00:00:00Z, or how long ago, such as 7d; default 24 hours before "
    "--until.",
)
@click.option(
    "--until",
    "until_ms",
    type=Moment(),
    help="Judge the windows before this time; default what there is now.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Report this topic alone: by its name, or as datacenter.topic; may be given several times.",
)
@click.option(
    "--producer",
    "producers",
    multiple=True,
    metavar="NAME",
    help="Report what is of this producer alone: by its uuid, server, service or host; may be given several times.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder for report.json and report.html.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def report(
    opened: OpenAuditor,
    silent_after_seconds: float,
    since_ms: int | None,
    until_ms: int | None,
    topics: tuple[str, ...],
    producers: tuple[str, ...],
    output: Path,
    as_json: bool,
) -> None:
    """Reconcile all tiers and write report.json and report.html; exit 0 only when every window of the time is complete
    but for what was accepted.

    Example: headrace audit report --bootstrap 127.0.3.1:9092 --warehouse var/warehouse --output var/report
    """
    period = _period(since_ms, until_ms)
    auditor = opened()
    make_folder(output, "--output")
    read_all(auditor)
    auditor.read_settled(period)
    outcome = auditor.outcome(now_ms(), silent_after_seconds, period)
    outcome = _chosen(outcome, Choice(topics, producers), auditor.ledger)
    found = reports.as_json(outcome, auditor.ledger, now_ms())
    _write(output, found, auditor.ledger)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        console = Console(markup=False, highlight=False, soft_wrap=True)
        console.print(f"{found['verdict']}: {reports.sentence(found)}")
    sys.exit(0 if open_verdict(outcome, auditor.ledger.acceptances) == "complete" else 1)


def _period(since_ms: int | None, until_ms: int | None) -> Period:
    end_ms = now_ms() if until_ms is None else until_ms
    period = Period(
        end_ms - REPORTED_MS if since_ms is None else since_ms, END_MS if until_ms is None else until_ms
    )
    if period.since_ms >= end_ms:
        raise click.BadParameter("the time begins after its end: name an earlier one.", param_hint="--since")
    return period


def _chosen(outcome: Outcome, choice: Choice, ledger: Ledger) -> Outcome:
    unknown = choice.unknown(outcome, ledger.producers)
    if unknown:
        raise click.ClickException(
            f"nothing that is open or was found goes by the name of {', '.join(unknown)}: name topics with --topic, and with "
            "--producer a uuid, server, service or host that the whole report has"
        )
    absent = choice.absent(outcome, ledger)
    if absent:
        raise click.ClickException(
            f"nothing that is open or was found of {', '.join(absent)} is in {', '.join(choice.topics)}: leave --topic "
            "out to see where it publishes"
        )
    return chosen(outcome, choice, ledger.producers)


def read_all(auditor: Auditor) -> None:
    """Read what is new, and observe what waits; what keeps failing becomes the command's one line."""
    for attempt in range(1, REPORT_ATTEMPTS_MAX + 1):
        try:
            auditor.update(now_ms())
            auditor.observe_waiting(now_ms())
            return
        except (ConnectionFailedError, KafkaError) as error:
            raise click.ClickException(f"the offline cluster does not answer: {error}") from error
        except (WarehouseError, OSError) as error:
            if attempt == REPORT_ATTEMPTS_MAX:
                raise click.ClickException(f"the warehouse cannot be read: {error}") from error


def _write(output: Path, found: dict[str, Any], ledger: Ledger) -> None:
    # Without a home it warns of the folder that it makes for its fonts, which nobody needs to know.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from headrace.audit.page.offline import render

    contents = {
        "report.html": render(
            found,
            {span: ledger.latencies.histogram(span) for span in SPANS},
            {span: ledger.latencies.recent.minutes(span) for span in SPANS},
            now_ms(),
        ),
        "report.json": json.dumps(found, indent=2) + "\n",
    }
    for name, text in contents.items():
        temporary = output / f".{name}.new"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(output / name)


def _await_warehouse(
    warehouse: str, properties: dict[str, str], rounds: Rounds, stop: threading.Event
) -> bool:
    """Wait for the load to make the warehouse; False when told to stop before."""
    if not is_present(warehouse, properties):
        rounds.reason = f"it waits for the warehouse {warehouse}, which the load makes"
        logger.warning("waiting for the warehouse, which is not there yet", warehouse=warehouse)
    while not stop.is_set() and not is_present(warehouse, properties):
        stop.wait(RETRY_SECONDS)
    return not stop.is_set()
