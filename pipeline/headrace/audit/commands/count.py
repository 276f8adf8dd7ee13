"""`headrace audit count`: the counter of one datacenter as a process. Imports nothing of the ledger or the warehouse."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import click

from headrace.audit import modes, topic_names
from headrace.audit.commands.options import (
    RETRY_SECONDS,
    bootstrap_option,
    stop_on_signals,
)
from headrace.audit.counting.counter import FAILURES, LogCounter, Publisher, PublishError
from headrace.audit.counting.counter_metrics import CounterMetrics
from headrace.audit.modes import Mode, TopicModes
from headrace.audit.records import CounterTier
from headrace.audit.topic_names import TopicNames
from headrace.audit.windows import WINDOW_SIZE_MS
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.moment import now_ms
from headrace.broker.structured_log import configure, get_logger
from headrace.load.log_client import LogClient
from headrace.load.options import listener_option
from headrace.load.pages import serve_pages
from headrace.load.rounds import Rounds

CLEANUP_POLICY: Final = "cleanup.policy"

logger = get_logger(__name__)


def _topic_names(context: click.Context, parameter: click.Parameter, value: str) -> TopicNames:
    try:
        return topic_names.parse(value) if value else TopicNames(frozenset(), ())
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _rules(
    context: click.Context, parameter: click.Parameter, value: str
) -> tuple[tuple[TopicNames, Mode], ...]:
    try:
        return modes.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@bootstrap_option
@click.option("--datacenter", required=True, help="Name of the datacenter whose log is counted.")
@click.option(
    "--tier", type=click.Choice(["live", "offline"]), required=True, help="What that datacenter is."
)
@click.option(
    "--topics",
    "wanted",
    default="",
    metavar="NAME|REGEX,…",
    callback=_topic_names,
    help="Topics whose events to count: names, or regular expressions on whole names, which take new topics from the next "
    "round on.",
)
@click.option(
    "--modes",
    "rules",
    default="",
    metavar="NAME|REGEX=MODE,…",
    callback=_rules,
    help="How topics are audited, by their names in their live datacenter: by their `events`, by their batch `headers` alone "
    "(those of any client), or `off`; the first that takes a topic decides. Topics that `headers` takes need not be in --topics.",
)
@click.option(
    "--interval", default=1.0, show_default=True, type=click.FloatRange(min=0.05), help="Seconds per round."
)
@listener_option
@click.option(
    "--once",
    is_flag=True,
    help="Count what is there now and end; exit 1 when a name or pattern takes no topic.",
)
def count(
    bootstrap: Bootstrap,
    datacenter: str,
    tier: CounterTier,
    wanted: TopicNames,
    rules: tuple[tuple[TopicNames, Mode], ...],
    interval: float,
    metrics_listener: str | None,
    once: bool,
) -> None:
    """Count a cluster's own log and publish the counts to its topic headrace.counts, until stopped.

    A regular expression takes no topic of Kafka's or headrace's own (__…, _schemas, headrace.…), nor a copy of one.

    Example: headrace audit count --bootstrap 127.0.1.1:9092 --datacenter dc-east --tier live --topics 'pageviews.*'
    """
    topics = TopicModes(wanted, rules, is_copies=tier == "offline")
    if not topics.takes_any:
        raise click.UsageError("there is nothing to count: name topics with --topics or --modes.")
    configure()
    stop = stop_on_signals()
    rounds = Rounds("headrace_counter", interval)
    metrics = CounterMetrics(topics)
    serve_pages(metrics_listener, metrics.registry, rounds)
    client = LogClient(bootstrap, client_id="headrace-counter")
    publisher = Publisher(bootstrap)
    try:
        counter = _retried(
            lambda: LogCounter(
                client,
                publisher,
                tier=tier,
                datacenter=datacenter,
                topics=topics,
                window_size_ms=WINDOW_SIZE_MS,
                clock_ms=now_ms,
                policies=lambda topics: client.topic_settings(topics, CLEANUP_POLICY),
                went_on=rounds.went_on,
            ),
            rounds,
            stop,
        )
        if counter is not None:
            metrics.counter = counter
            logger.info("counting", tier=tier, datacenter=datacenter, topics=str(topics))
            _count_on(counter, rounds, topics, interval, once, stop)
            missing = _missing(counter, topics) if once and not stop.is_set() else ""
            if missing:
                raise click.ClickException(missing)
    except PublishError as error:
        raise click.ClickException(
            f"{error}; start the counter again, it goes on from its last record"
        ) from error
    finally:
        client.close()


def _retried(make: Callable[[], LogCounter], rounds: Rounds, stop: threading.Event) -> LogCounter | None:
    """Wait for the cluster to answer; None when told to stop before."""
    while not stop.is_set():
        try:
            return make()
        except FAILURES as error:
            rounds.failed(f"it waits for the cluster: {error}")
            stop.wait(RETRY_SECONDS)
    return None


def _count_on(
    counter: LogCounter,
    rounds: Rounds,
    wanted: TopicModes,
    interval: float,
    once: bool,
    stop: threading.Event,
) -> None:
    while not stop.is_set():
        begun = time.monotonic()
        try:
            has_more = counter.round()
        except FAILURES as error:
            rounds.failed(error)
            stop.wait(RETRY_SECONDS)
            continue
        rounds.ended(time.monotonic() - begun, _hindrance(counter, wanted))
        if once and not has_more:
            return
        if not has_more:
            stop.wait(max(0.0, interval - (time.monotonic() - begun)))


def _missing(counter: LogCounter, wanted: TopicModes) -> str:
    """A sentence about the names and patterns that take no topic."""
    missing = wanted.missing(counter.known_topics)
    if not missing:
        return ""
    return f"the cluster has no topic {' and no '.join(missing)}; `headrace topics list` shows those it has."


def _hindrance(counter: LogCounter, wanted: TopicModes) -> str:
    """Why the last round counted nothing although it ended."""
    if not counter.known_topics:
        return _missing(counter, wanted)
    unreachable = counter.figures.unreachable
    if not unreachable or counter.figures.reached:
        return ""
    return f"no leader answers of its {unreachable} partitions"
