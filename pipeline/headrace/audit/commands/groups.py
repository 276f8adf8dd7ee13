"""`headrace audit groups`: what each consumer group of a cluster has read of what was counted there, and what it never will."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click
from rich.table import Table

from headrace.audit import batch_counts
from headrace.audit.commands.options import bootstrap_option
from headrace.audit.counting import group_reading
from headrace.audit.counting.count import census
from headrace.audit.counting.counter import COUNTS, records_between
from headrace.audit.counting.group_reading import Ends, Parting, Reading, Windows, events_of, parting
from headrace.audit.records import Counted
from headrace.audit.report import time_text
from headrace.audit.windows import WINDOW_SIZE_MS
from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.console import console
from headrace.broker.errors import KafkaError
from headrace.broker.moment import Moment
from headrace.broker.wire.partitions import TopicPartition
from headrace.load.log_client import LogClient
from headrace.load.ranges import OffsetRange
from headrace.load.source import StandstillError, chunks, header_chunks

COUNTED_LATE_MS: Final = 600_000
"""A counter's clock may be so much behind those of the events."""
HEADINGS: Final = (
    "group",
    "topic",
    "read",
    "unread",
    "lost",
    "read whole up to",
    "partitions without an offset",
)
NAME: Final = re.compile(r"[^][\\*+?(){}|^$]+")
"""A pattern that is no more than a group's name; a dot is one of a name."""
Readings = dict[tuple[str, str], Reading]


class _Pattern(click.ParamType[re.Pattern[str]]):
    name = "REGEX"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        try:
            return re.compile(str(value))
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)


@click.command()
@bootstrap_option
@click.option(
    "--groups",
    "wanted",
    type=_Pattern(),
    default=".*",
    help="Groups, by their whole names.",
    show_default=True,
)
@click.option(
    "--since",
    "since_ms",
    type=Moment(),
    default="24h",
    show_default=True,
    help="Windows from this time on: as 2026-01-31T00:00:00Z, or how long ago.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def groups(bootstrap: Bootstrap, wanted: re.Pattern[str], since_ms: int, as_json: bool) -> None:
    """Print what consumer groups have read of the events that this cluster's counter counted, by the offsets that they
    committed; exit 1 when retention took some before a group had read them, or when no group has the one name that is given.

    Example: headrace audit groups --groups 'billing|search-.*' --since 6h --bootstrap 127.0.3.1:9092
    """
    client = LogClient(bootstrap, client_id="headrace-audit")
    try:
        found = _Cluster(client, since_ms).readings(wanted)
    except (ConnectionFailedError, KafkaError, StandstillError, OSError) as error:
        raise click.ClickException(f"what groups have read cannot be told: {error}") from error
    finally:
        client.close()
    rows = [group_reading.as_json(*place, reading) for place, reading in sorted(found.items())]
    if as_json:
        click.echo(json.dumps({"since_ms": since_ms, "groups": rows}))
    else:
        _print(rows)
    sys.exit(1 if any(reading.lost.total() for reading in found.values()) else 0)


@dataclass(slots=True)
class _Cluster:
    """Reads what is asked of one cluster."""

    client: LogClient
    since_ms: int

    def readings(self, wanted: re.Pattern[str]) -> Readings:
        groups = [group for group in self.client.groups() if wanted.fullmatch(group)]
        if not groups and NAME.fullmatch(wanted.pattern):
            raise click.ClickException(
                f"There is no group {wanted.pattern!r}: `headrace groups list` shows those there are."
            )
        counted = self._counted()
        committed = {group: offsets for group in groups if (offsets := self.client.committed(group))}
        topics = {place.topic for offsets in committed.values() for place in offsets}
        logs = self.client.log_offsets(self.client.partitions(lambda topic: topic in topics))
        found: Readings = {}
        for item, events in counted:
            for group, offsets in committed.items():
                if item.partition in logs and any(place.topic == item.partition.topic for place in offsets):
                    reading = found.setdefault((group, item.partition.topic), Reading())
                    self._add(reading, item, events, offsets.get(item.partition), logs[item.partition].start)
        for (group, topic), reading in found.items():
            reading.uncommitted = sum(
                place.topic == topic and place not in committed[group] for place in logs
            )
        return found

    def _counted(self) -> list[tuple[Counted, Windows]]:
        """What was counted of windows since then, every range of offsets once."""
        if COUNTS not in self.client.partitions(lambda topic: topic == COUNTS.topic):
            raise click.ClickException(
                "this cluster has no topic headrace.counts: have `headrace audit count` count it, then ask again"
            )
        ends = self.client.log_offsets([COUNTS])[COUNTS]
        begin = self.client.offsets_since([COUNTS], max(0, self.since_ms - COUNTED_LATE_MS)).get(COUNTS, -1)
        positions: dict[TopicPartition, int] = {}
        found = []
        for item in records_between(self.client, ends.end if begin < 0 else begin, ends.end):
            if isinstance(item, Counted) and item.first >= positions.get(item.partition, 0):
                positions[item.partition] = item.next
                events = events_of(item.tallies, item.batches, self.since_ms)
                if events:
                    found.append((item, events))
        return found

    def _add(
        self, reading: Reading, counted: Counted, events: Windows, committed: int | None, log_start: int
    ) -> None:
        first, following = counted.first, counted.next
        if committed is None:
            reading.add_uncommitted(first, log_start, events)
            return
        ends = Ends(committed, log_start)
        wanted = parting(first, following, ends)
        reading.add(
            first, following, ends, events, None if wanted is None else (wanted, self._again(counted, wanted))
        )

    def _again(self, counted: Counted, wanted: Parting) -> Windows:
        """The events of these offsets, from the log."""
        found = Windows()
        if wanted.first >= wanted.next:
            return found
        topic, partition = counted.partition
        asked = OffsetRange(
            topic=topic, partition=partition, first_offset=wanted.first, next_offset=wanted.next
        )
        if counted.batches is None:
            for chunk in chunks(self.client, asked):
                tallies = census(chunk.records, WINDOW_SIZE_MS).tallies
                found.update(events_of(tallies, None, self.since_ms))
            return found
        for headers in header_chunks(self.client, asked):
            sums = batch_counts.census(headers.headers, headers.aborted, wanted.first, WINDOW_SIZE_MS)
            found.update(events_of((), sums, self.since_ms))
        return found


def _print(rows: list[Mapping[str, object]]) -> None:
    if not rows:
        click.echo("No group that matches has committed an offset of a topic that is counted here.")
        return
    table = Table(*HEADINGS, box=None)
    for row in rows:
        up_to = row["whole_up_to_ms"]
        table.add_row(
            str(row["group"]),
            str(row["topic"]),
            *(f"{row[name]:,}" for name in ("read", "unread", "lost")),
            "all of it" if up_to is None else time_text(int(str(up_to))),
            str(row["partitions_without_offset"]),
        )
    console(markup=False).print(table)
