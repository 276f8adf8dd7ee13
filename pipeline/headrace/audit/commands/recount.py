"""`headrace audit recount`: count a window again, from the logs and the table as they are now, and set that beside the ledger."""

from __future__ import annotations

import json
import sys
from typing import NamedTuple

import click
from rich.console import Console

from headrace.audit.auditor import Auditor
from headrace.audit.commands.watch import OpenAuditor, read_all, reader_options
from headrace.audit.counting.count import census
from headrace.audit.outcome import Counts, Topic
from headrace.audit.period import Period
from headrace.audit.report import time_text
from headrace.audit.windows import WINDOW_SIZE_MS
from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.bootstrap_option import bootstrap_option
from headrace.broker.errors import KafkaError
from headrace.broker.moment import Moment, now_ms
from headrace.load.log_client import LogClient
from headrace.load.ranges import OffsetRange
from headrace.load.source import StandstillError, chunks
from headrace.load.tables import WarehouseError, split_topic


class Recounted(NamedTuple):
    """Events of the window in one tier; `gone`: offsets that the log has no longer, which may have had some of them."""

    tier: str
    events: int
    ledger: int
    gone: int = 0
    letters: int = 0
    """Dead letters of the topic, which count as being there, whatever their window."""

    @property
    def verdict(self) -> str:
        if self.events <= self.ledger <= self.events + self.letters:
            return "agrees"
        return "gone from the log" if self.events < self.ledger and self.gone else "differs"


@click.command()
@click.option(
    "--topic", required=True, metavar="DATACENTER.TOPIC", help="The topic, as the offline cluster calls it."
)
@click.option("--window", "at_ms", type=Moment(), required=True, help="A time in the window.")
@bootstrap_option(
    "Brokers of the live cluster, to count there, too.",
    option="--live",
    config_option="--live-command-config",
    required=False,
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@reader_options
def recount(
    opened: OpenAuditor,
    silent_after_seconds: float,
    topic: str,
    at_ms: int,
    live: Bootstrap | None,
    as_json: bool,
) -> None:
    """Count a window of a topic again, and say whether that agrees with the ledger; exit 1 when some tier does not.

    Reads all that the logs still have of the topic.

    Example: headrace audit recount --topic dc-east.pageviews --window 2026-01-31T23:59:40Z --bootstrap 127.0.3.1:9092
    """
    start_ms = at_ms - at_ms % WINDOW_SIZE_MS
    period = Period(start_ms, start_ms + WINDOW_SIZE_MS)
    auditor = opened()
    read_all(auditor)
    auditor.read_settled(period)
    outcome = auditor.judged(now_ms(), silent_after_seconds, period)
    key = split_topic(topic)
    known = outcome.topics.get(key)
    if known is None:
        raise click.ClickException(
            f"the ledger knows no topic {topic}; `headrace audit report` names those it knows."
        )
    found = _recounted(auditor, key, known, start_ms, live)
    if as_json:
        rows = [{**item._asdict(), "verdict": item.verdict} for item in found]
        window = {"since": time_text(period.since_ms), "until": time_text(period.until_ms)}
        click.echo(json.dumps({"topic": topic, **window, "tiers": rows}))
    else:
        _print(topic, period, found)
    sys.exit(0 if all(item.verdict == "agrees" for item in found) else 1)


def _recounted(
    auditor: Auditor, key: Topic, known: Counts, start_ms: int, live: Bootstrap | None
) -> list[Recounted]:
    datacenter, topic = key
    clusters = [("offline", auditor.bootstrap, f"{datacenter}.{topic}", known.offline)]
    clusters += [("live", live, topic, known.live)] if live else []
    found = []
    try:
        for tier, bootstrap, name, expected in clusters:
            events, gone = count_window(LogClient(bootstrap, client_id="headrace-audit"), name, start_ms)
            found.append(Recounted(tier, events, expected, gone))
        rows = auditor.rows_of(key, Period(start_ms, start_ms + WINDOW_SIZE_MS))
    except (ConnectionFailedError, KafkaError, StandstillError, WarehouseError, OSError) as error:
        raise click.ClickException(f"the window cannot be counted: {error}") from error
    letters = auditor.ledger.dead_letters.get(key, 0)
    return [*found, Recounted("warehouse", rows, known.warehouse, letters=letters)]


def count_window(client: LogClient, topic: str, start_ms: int) -> tuple[int, int]:
    """Return how many events of a window a topic's log has, and how many offsets it has no longer."""
    partitions = client.partitions(lambda name: name == topic)
    if not partitions:
        raise click.ClickException(
            f"the cluster has no topic {topic}; `headrace topics list` shows those it has."
        )
    events = gone = 0
    for partition, ends in client.log_offsets(partitions).items():
        gone += ends.start
        wanted = OffsetRange(
            topic=topic, partition=partition.partition, first_offset=ends.start, next_offset=ends.end
        )
        for chunk in chunks(client, wanted) if ends.start < ends.end else ():
            tallies = census(chunk.records, WINDOW_SIZE_MS).tallies
            events += sum(item.count for item in tallies if item.window_start == start_ms)
    return events, gone


def _print(topic: str, period: Period, found: list[Recounted]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{topic}, {time_text(period.since_ms)} to {time_text(period.until_ms)}")
    for item in found:
        console.print(
            f"{item.tier}: {item.events:,} counted now, {item.ledger:,} in the ledger: {item.verdict}"
        )
