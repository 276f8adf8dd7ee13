"""`headrace audit count`: the counter of one datacenter as a process. Imports nothing of the ledger or the warehouse."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import click

from headrace.audit.counter import FAILURES, LogCounter, Publisher, PublishError
from headrace.audit.options import RETRY_SECONDS, bootstrap_option, now_ms, stop_on_signals
from headrace.audit.records import CounterTier
from headrace.audit.windows import WINDOW_SIZE_MS
from headrace.broker.structured_log import configure, get_logger
from headrace.load.wire_client import Client

log = get_logger(__name__)


@click.command()
@bootstrap_option
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
    stop = stop_on_signals()
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
