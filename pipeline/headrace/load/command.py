"""`headrace load`: load topics into warehouse tables, once or for good."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import click
from rich.console import Console

from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.bootstrap_option import bootstrap_option
from headrace.broker.errors import KafkaError
from headrace.broker.structured_log import configure, get_logger
from headrace.events.registry_address import RegistryAddress
from headrace.events.registry_option import registry_option
from headrace.load import expiry, first_look
from headrace.load.driver import LoadConfig, Loader, RoundReport
from headrace.load.log_client import LogClient
from headrace.load.metrics import LoadMetrics
from headrace.load.options import listener_option, warehouse_options
from headrace.load.pages import serve_pages
from headrace.load.ranges import Limits, LoadFinding
from headrace.load.redrive_command import redrive
from headrace.load.resume_command import resume, skip
from headrace.load.rounds import Rounds
from headrace.load.spark import spark_session, spark_tasks, warm_up
from headrace.load.tables import WarehouseError, is_present, open_catalog

TOPICS: Final = r"^[^.]+\.pageviews$"
WAIT_SECONDS: Final = 0.5
"""Between rounds of `--once` while a schema or a broker is waited for."""
FAILED_ROUNDS_MAX: Final = 10
HISTORY_DAYS_MAX: Final = 3650
REFUSED_ROUNDS_MAX: Final = 100

logger = get_logger(__name__)


@dataclass(slots=True)
class Totals:
    rows: int = 0
    dead_letters: int = 0
    size_bytes: int = 0
    commits: int = 0
    lag: int = 0
    seconds: float = 0.0
    findings: list[LoadFinding] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    refused_topics: list[str] = field(default_factory=list)

    def add(self, report: RoundReport) -> None:
        self.rows += report.rows
        self.dead_letters += report.dead_letters
        self.size_bytes += report.size_bytes
        self.commits += report.commits
        self.lag = report.lag
        self.findings = report.findings
        self.failures = report.failures
        self.refused_topics = report.refused_topics

    @property
    def is_complete(self) -> bool:
        return not (self.findings or self.failures or self.refused_topics) and self.lag <= 0


@click.group(invoke_without_command=True)
@bootstrap_option("Brokers of the cluster to load from.  [required]", required=False)
@registry_option(
    "Schema registries; the first that answers is asked what an id means in the record's topic.  [required]",
    required=False,
)
@warehouse_options
@click.option(
    "--topics", default=TOPICS, show_default=True, metavar="REGEX", help="Topics to load, by whole name."
)
@click.option(
    "--once",
    is_flag=True,
    help="Load what is there now and end; exit 1 when not all could be, no topic matches, or no broker answers for "
    f"{first_look.BROKERS_WAIT_SECONDS:.0f} s. Without it go on until stopped.",
)
@click.option(
    "--interval", default=1.0, show_default=True, type=click.FloatRange(min=0.05), help="Seconds per round."
)
@click.option(
    "--tasks", default=2, show_default=True, type=click.IntRange(1, 256), help="Spark tasks at a time."
)
@click.option(
    "--schema-wait",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds that records wait, side by side, for schemas to appear before they become dead letters.",
)
@click.option(
    "--history-days",
    default=expiry.AGE_MS / expiry.DAY_MS,
    show_default=True,
    type=click.FloatRange(min=0, max=HISTORY_DAYS_MAX),
    help="Days back for which tables answer as of a time; a table's history.expire.max-snapshot-age-ms comes first.",
)
@listener_option
@click.option(
    "--json", "as_json", is_flag=True, help="Print what was done as JSON: a line a commit, or totals."
)
@click.pass_context
def load(
    context: click.Context,
    bootstrap: Bootstrap | None,
    registry: RegistryAddress | None,
    warehouse: str,
    catalog_properties: dict[str, str],
    topics: str,
    once: bool,
    interval: float,
    tasks: int,
    schema_wait: float,
    history_days: float,
    metrics_listener: str | None,
    as_json: bool,
) -> None:
    """Load topics into warehouse tables: rows and offsets in one commit, so nothing is missed or seen twice.

    Example: headrace load --once --bootstrap 127.0.3.1:9092 --registry http://127.0.3.12:8081 --warehouse var/warehouse

    A partition whose next offsets are gone or rotten, or whose log is not the one that was read, stands still and says
    why; the others go on. The commands below let it go on.
    """
    if context.invoked_subcommand is not None:
        return
    for name, value in (("--bootstrap", bootstrap), ("--registry", registry)):
        if value is None:
            raise click.UsageError(f"Missing option '{name}'.")
    assert bootstrap is not None
    assert registry is not None
    configure()
    config = LoadConfig(
        bootstrap=bootstrap,
        registry=registry,
        task_count_max=tasks,
        wanted=_pattern(topics),
        limits=Limits(),
        schema_wait_seconds=schema_wait,
        snapshot_age_ms=int(history_days * expiry.DAY_MS),
    )
    metrics, rounds = LoadMetrics(), Rounds("headrace_load", interval)
    stop = threading.Event()
    _stop_on_signals(stop)
    serve_pages(metrics_listener, metrics.registry, rounds)
    if once:
        _look_first(config, topics, stop)
    try:
        if not is_present(warehouse, catalog_properties):
            logger.info("there is no warehouse yet, it is made", warehouse=warehouse)
        catalog = open_catalog(warehouse, catalog_properties)
        session = spark_session(tasks)
        _stop_on_signals(stop)  # again: starting Spark puts its own handler of SIGINT in place
        warm_up(session, tasks)
        loader = Loader(catalog, config, spark_tasks(session), went_on=rounds.went_on)
        work = _Work(loader, metrics, rounds, stop)
        totals = _once(work) if once else _for_good(work, interval, as_json)
        loader.close()
    except WarehouseError as error:
        raise click.ClickException(str(error)) from error
    except Exception as error:
        logger.failure("load failed", error)
        lines = str(error).splitlines() or [type(error).__name__]
        raise click.ClickException(f"the load failed and can be started again: {lines[0]}") from error
    session.stop()
    _end(totals, once, as_json, stopped=stop.is_set())


load.add_command(resume)
load.add_command(skip)
load.add_command(redrive)


def _look_first(config: LoadConfig, topics: str, stop: threading.Event) -> None:
    """End the command in a sentence where brokers do not answer or have nothing to load."""
    client = LogClient(
        config.bootstrap, client_id="headrace-load", timeout_seconds=first_look.ANSWER_SECONDS_MAX
    )
    try:
        is_any = first_look.has_topics(client, config.wanted, stop)
    except (ConnectionFailedError, KafkaError) as error:
        raise click.ClickException(f"nothing was loaded: {error}") from error
    finally:
        client.close()
    if not is_any:
        raise click.ClickException(
            f"nothing was loaded: no topic of the cluster matches --topics {topics}; `headrace topics list` shows those it has"
        )


@dataclass(frozen=True, slots=True)
class _Work:
    """The loader, with whom its rounds are told to and the wish to stop."""

    loader: Loader
    metrics: LoadMetrics
    rounds: Rounds
    stop: threading.Event

    def round(self) -> RoundReport:
        """Run a round; one that some broker or registry did not answer has failed, and went on where any broker did."""
        begun = time.monotonic()
        report = self.loader.round()
        self.metrics.observe(report)
        if not report.failures:
            self.rounds.ended(time.monotonic() - begun)
            return report
        self.rounds.failed(*report.failures)
        if report.reached:
            self.rounds.went_on()
        return report


def _once(work: _Work) -> Totals:
    """Run rounds until nothing moves; wait for schemas as long as configured, for brokers a few rounds."""
    totals, started = Totals(), time.monotonic()
    failed = refused = 0
    while not work.stop.is_set():
        report = work.round()
        totals.add(report)
        failed = failed + 1 if report.failures else 0
        refused = refused + 1 if report.refused else 0
        if failed >= FAILED_ROUNDS_MAX or refused >= REFUSED_ROUNDS_MAX:
            break
        if report.waiting_for_schemas or report.failures:
            work.stop.wait(WAIT_SECONDS)
        elif not report.moved or (report.lag <= 0 and not report.refused):
            break
    totals.seconds = round(time.monotonic() - started, 3)
    return totals


def _for_good(work: _Work, interval: float, as_json: bool) -> Totals:
    """Begin a round every `interval` seconds, at once while there is a backlog, until a signal comes."""
    totals, started = Totals(), time.monotonic()
    logger.info("loading")
    while not work.stop.is_set():
        begun = time.monotonic()
        report = work.round()
        totals.add(report)
        if report.commits:
            _tell_commit(report, as_json)
        if not (report.moved and report.lag > 0):
            work.stop.wait(max(0.0, interval - (time.monotonic() - begun)))
    totals.seconds = round(time.monotonic() - started, 3)
    return totals


def _tell_commit(report: RoundReport, as_json: bool) -> None:
    facts: dict[str, Any] = {
        "rows": report.rows,
        "dead_letters": report.dead_letters,
        "lag": report.lag,
        "commit_seconds": round(report.commit_seconds, 3),
    }
    if as_json:
        click.echo(json.dumps(facts))
    else:
        logger.info("committed", **facts)


def _end(totals: Totals, once: bool, as_json: bool, *, stopped: bool) -> None:
    if once and as_json:
        click.echo(json.dumps(asdict(totals), indent=2))
    elif once:
        Console().print(
            f"{totals.rows} rows and {totals.dead_letters} dead letters in {totals.commits} commits, "
            f"{totals.size_bytes / 1e6:.1f} MB in {totals.seconds:.1f} s"
        )
    if once and not stopped and not totals.is_complete:
        reasons = [finding.sentence for finding in totals.findings] + totals.refused_topics + totals.failures
        raise click.ClickException("; ".join(reasons[:5]) or f"{totals.lag} records are still to be loaded")


def _pattern(topics: str) -> Callable[[str], bool]:
    try:
        pattern = re.compile(topics)
    except re.error as error:
        raise click.BadParameter(
            f"{topics!r} is no regular expression: {error}", param_hint="--topics"
        ) from error
    return lambda topic: not topic.startswith("__") and pattern.fullmatch(topic) is not None


def _stop_on_signals(stop: threading.Event) -> None:
    """Let the round in progress finish, then end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
