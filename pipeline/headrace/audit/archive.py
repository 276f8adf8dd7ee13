"""What is settled, for ever: the tables `warehouse.audit_windows` and `warehouse.audit_findings`, which any engine queries.

Owns their columns and how facts get there. Invariants: a row that is there stays; each batch of facts is in each table once,
whatever dies in between, since its number is committed with its rows and is in the ledger's file before; the tables say up to
when each topic is settled, so that a ledger that was lost begins behind what they hold. A window has several rows where
something of it was settled later: its numbers are their sums.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import LongType

from headrace.audit.latency import HOPS
from headrace.audit.ledger.facts import Batch, Facts, HopCounts, with_scalars
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Counts, Finding, Incomplete
from headrace.audit.period import BEGIN_MS, END_MS, Period
from headrace.audit.windows import WINDOW_SIZE_MS, ProducerName, Stream
from headrace.load.commit import WarehouseTransaction
from headrace.load.tables import AUDIT_BATCH, AUDIT_FINDINGS, AUDIT_WINDOWS, NAMESPACE, ensure_table

TOPICS: Final = "headrace.audit-topics"
"""Of `audit_windows`: up to when each topic is settled, and the sums of all its windows."""
MERGED_EVERY: Final = 24
"""Batches between two merges of the small files that they left: with one every ten minutes, four hours."""
MERGED_ROWS_MAX: Final = 500_000
"""Rows of the file that small ones are merged into; larger ones stay as they are."""
CALENDAR_END_MS: Final = 250_000_000_000_000
"""In the year 9892: later times are of no calendar."""
INCOMPLETE: Final = "incomplete"
"""The kind of a row that is a reason why windows are not complete."""
_COUNTS: Final = tuple(Counts.__slots__)
_FAULTS: Final = ("lost", "duplicated", "under_way", "unknown", "compacted")
_TIME: Final = pa.timestamp("us", "UTC")
WINDOWS_TABLE: Final = pa.schema(
    [
        pa.field("datacenter", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("window_start", _TIME, nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in _COUNTS),
        *(pa.field(f"{name}_{hop}", pa.int64(), nullable=False) for hop in HOPS for name in _FAULTS),
        pa.field("batch", pa.int64(), nullable=False),
    ]
)
FINDINGS_TABLE: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("kind", "hop", "datacenter", "topic")),
        *(pa.field(name, pa.string()) for name in ("server", "service", "producer")),
        *(pa.field(name, pa.int64()) for name in ("first_sequence", "last_sequence", "count")),
        pa.field("window_start", _TIME),
        pa.field("window_end", _TIME),
        pa.field("partition", pa.int32()),
        *(pa.field(name, pa.int64()) for name in ("first_offset", "last_offset")),
        pa.field("reason", pa.string()),
        pa.field("batch", pa.int64(), nullable=False),
    ]
)


class Archive:
    """The tables of one warehouse."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def restored(self, ledger: Ledger) -> Ledger:
        """Return the ledger; one that knows less of what is settled than the tables do is begun anew behind that."""
        table = self._table(AUDIT_WINDOWS)
        if table is None or _number(table) <= ledger.facts.last_number:
            return ledger
        anew = ledger.begun_anew()
        anew.facts.batch = _number(table)
        for datacenter, topic, fields in json.loads(table.properties.get(TOPICS, "[]")):
            anew.facts.topics[datacenter, topic] = with_scalars(fields)
        anew.rebuilt = {topic: facts.until_ms for topic, facts in anew.facts.topics.items()}
        return anew

    def write(self, facts: Facts, names: Mapping[str, ProducerName]) -> None:
        """Append the batch that is to be written; a table that has it already stays as it is.

        Raises:
            OSError, CommitFailedException: it is written later.
        """
        batch = facts.pending
        if batch is None:
            return
        findings = [_finding_row(item, names, batch.number) for item in batch.found]
        self._append(AUDIT_FINDINGS, FINDINGS_TABLE, findings, batch, {})
        rows = [_window_row(*window, batch.number) for window in batch.windows]
        settled = json.dumps(batch.topics, separators=(",", ":"))
        self._append(AUDIT_WINDOWS, WINDOWS_TABLE, rows, batch, {TOPICS: settled})
        facts.batch, facts.pending = batch.number, None
        for found in facts.topics.values():
            found.forget_written()

    def read_into(self, ledger: Ledger, period: Period) -> None:
        """Give a ledger the windows and findings of a period, of all that is settled."""
        facts = ledger.facts
        for found in facts.topics.values():
            found.begin_reading()
        table = self._table(AUDIT_WINDOWS)
        if facts.pending is not None and (table is None or _number(table) < facts.pending.number):
            facts.take_pending()
        for row in self._rows(AUDIT_WINDOWS, _windows_of(period)):
            topic = facts.topics.get((row["datacenter"], row["topic"]))
            if topic is not None:
                hops = {hop: Counts(**{name: row[f"{name}_{hop}"] for name in _FAULTS}) for hop in HOPS}
                counts = Counts(*(row[name] for name in _COUNTS))
                topic.take_window(_ms(row["window_start"], 0), counts, hops)
        for row in self._rows(AUDIT_FINDINGS, _findings_of(period)):
            topic = facts.topics.get((row["datacenter"], row["topic"]))
            if topic is None:
                continue
            ledger.producers.setdefault(row["producer"], ProducerName(row["server"], row["service"]))
            if row["kind"] == INCOMPLETE:
                topic.incomplete.append(_to_incomplete(row))
            else:
                topic.findings.append(_to_finding(row))

    def _rows(self, name: str, chosen: str) -> list[dict[str, Any]]:
        table = self._table(name)
        return [] if table is None else table.scan(row_filter=chosen).to_arrow().to_pylist()

    def _table(self, name: str) -> Table | None:
        try:
            return self._catalog.load_table(f"{NAMESPACE}.{name}")
        except NoSuchTableError:
            return None

    def _append(
        self,
        name: str,
        columns: pa.Schema,
        rows: list[dict[str, Any]],
        batch: Batch,
        properties: Mapping[str, str],
    ) -> None:
        table = ensure_table(self._catalog, name, columns)
        if _number(table) >= batch.number:
            return
        with WarehouseTransaction(table) as transaction:
            if rows:
                told = {AUDIT_BATCH: str(batch.number)}
                transaction.append(pa.Table.from_pylist(rows, schema=columns), snapshot_properties=told)
            transaction.set_properties({AUDIT_BATCH: str(batch.number), **properties})

    def merge(self, facts: Facts) -> None:
        """Make one file of the small ones of each table, when enough batches have left theirs; the rows stay.

        Raises:
            OSError, CommitFailedException: they are merged later.
        """
        if facts.batch % MERGED_EVERY or facts.pending is not None:
            return
        for name in (AUDIT_WINDOWS, AUDIT_FINDINGS):
            table = self._table(name)
            batches = None if table is None else _small_files(table)
            if table is None or batches is None:
                continue
            chosen = f"batch >= {batches[0]} and batch <= {batches[1]}"
            rows = table.scan(row_filter=chosen).to_arrow()
            told = {AUDIT_BATCH: str(facts.batch)}
            with WarehouseTransaction(table) as transaction:
                transaction.overwrite(rows, overwrite_filter=chosen, snapshot_properties=told)


def _number(table: Table) -> int:
    return int(table.properties.get(AUDIT_BATCH, "0"))


def _small_files(table: Table) -> tuple[int, int] | None:
    """Return the first and last batch of the youngest files that together fit into one; None where these are fewer than two."""
    files = [task.file for task in table.scan().plan_files()]
    taken: list[DataFile] = []
    rows = 0
    for file in sorted(files, key=lambda each: _batch_of(table, each.upper_bounds), reverse=True):
        rows += file.record_count
        if rows > MERGED_ROWS_MAX:
            break
        taken.append(file)
    if len(taken) < 2:
        return None
    return _batch_of(table, taken[-1].lower_bounds), _batch_of(table, taken[0].upper_bounds)


def _batch_of(table: Table, bounds: Mapping[int, bytes]) -> int:
    return int(from_bytes(LongType(), bounds[table.schema().find_field("batch").field_id]))


def _windows_of(period: Period) -> str:
    since = _iso(period.since_ms - WINDOW_SIZE_MS)
    return f"window_start >= '{since}' and window_start < '{_iso(period.until_ms)}'"


def _findings_of(period: Period) -> str:
    begins = f"window_start is null or window_start < '{_iso(period.until_ms)}'"
    return f"({begins}) and (window_end is null or window_end >= '{_iso(period.since_ms)}')"


def _iso(time_ms: int) -> str:
    return _time(min(max(time_ms, 0), CALENDAR_END_MS)).isoformat()


def _time(time_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)


def _known(time_ms: int) -> datetime | None:
    """Return a time; None where it is not known or out of what a calendar has."""
    return _time(time_ms) if 0 <= time_ms < CALENDAR_END_MS else None


def _ms(time: datetime | None, unknown: int) -> int:
    return unknown if time is None else round(time.timestamp() * 1000)


def _window_row(
    topic: tuple[str, str], start: int, counts: Counts, hops: HopCounts, batch: int
) -> dict[str, Any]:
    return {
        "datacenter": topic[0],
        "topic": topic[1],
        "window_start": _known(start) or _time(0),
        **{name: getattr(counts, name) for name in _COUNTS},
        **{f"{name}_{hop}": getattr(hops.get(hop, Counts()), name) for hop in HOPS for name in _FAULTS},
        "batch": batch,
    }


def _finding_row(item: Finding | Incomplete, names: Mapping[str, ProducerName], batch: int) -> dict[str, Any]:
    producer = item.producer if isinstance(item, Incomplete) else item.stream.producer
    name = names.get(producer, ProducerName("", ""))
    own = {"server": name.server, "service": name.service, "producer": producer, "batch": batch}
    if isinstance(item, Incomplete):
        return {
            "kind": INCOMPLETE,
            "hop": item.hop or None,
            "datacenter": item.datacenter,
            "topic": item.topic,
            "window_start": _known(item.period.since_ms),
            "window_end": _known(item.period.until_ms),
            "reason": item.reason,
            **own,
        }
    return {
        "kind": item.kind,
        "hop": item.hop,
        "datacenter": item.stream.datacenter,
        "topic": item.stream.topic,
        "first_sequence": item.first_sequence,
        "last_sequence": item.last_sequence,
        "count": item.count,
        "window_start": _known(item.window_start),
        "window_end": _known(item.window_end),
        "partition": item.partition,
        "first_offset": item.first_offset,
        "last_offset": item.last_offset,
        "reason": item.reason,
        **own,
    }


def _to_incomplete(row: Mapping[str, Any]) -> Incomplete:
    return Incomplete(
        datacenter=row["datacenter"],
        topic=row["topic"],
        producer=row["producer"],
        reason=row["reason"],
        period=Period(_ms(row["window_start"], BEGIN_MS), _ms(row["window_end"], END_MS)),
        hop=row["hop"] or "",
    )


def _to_finding(row: Mapping[str, Any]) -> Finding:
    kept: Iterable[str] = ("kind", "hop", "first_sequence", "last_sequence", "count")
    places: Iterable[str] = ("partition", "first_offset", "last_offset", "reason")
    return Finding(
        **{name: row[name] for name in (*kept, *places)},
        stream=Stream(row["datacenter"], row["topic"], row["producer"]),
        window_start=_ms(row["window_start"], -1),
        window_end=_ms(row["window_end"], -1),
    )
