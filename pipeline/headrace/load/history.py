"""What the table's snapshots say of offsets: how far it is loaded, and when which offsets arrived.

Owns four properties in the summary of each snapshot of an event table:
- `headrace.positions`: `{topic: {partition: next offset}}`, everything that the table holds;
- `headrace.offsets`: `{topic: {partition: [first, next]}}`, what this commit brought; its arrival time is the
  snapshot's time;
- `headrace.topics`: `{topic: id}`, which topic it was whose offsets these are;
- `headrace.dead-letters`: paths of the commit's dead-letter files (see `commit`).

Positions live in the newest snapshot that has them, which never expires: what others commit above it (a delete, a
compaction) says nothing of offsets and takes nothing from them. Arrivals of other snapshots are copied to the table
`warehouse.load_history` before those expire; that table's own snapshot says up to which sequence number
(`headrace.archived`), so `arrivals` counts each commit once whatever dies in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from headrace.load.ranges import TopicPartition
from headrace.load.tables import LOAD_HISTORY, LOAD_HISTORY_TABLE, NAMESPACE, WarehouseError, load_table

POSITIONS: Final = "headrace.positions"
OFFSETS: Final = "headrace.offsets"
TOPICS: Final = "headrace.topics"
DEAD_LETTER_FILES: Final = "headrace.dead-letters"
ARCHIVED: Final = "headrace.archived"


def positions(table: Table) -> dict[TopicPartition, int]:
    """Return the next offset to load of every partition that the table has ever loaded."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in summary_json(newest_with(table, POSITIONS), POSITIONS).items()
        for partition, offset in partitions.items()
    }


def topic_ids(table: Table) -> dict[str, str]:
    """Return the ids of the topics that the positions belong to, where the brokers gave one."""
    return dict(summary_json(newest_with(table, POSITIONS), TOPICS))


def newest_with(table: Table, name: str) -> Snapshot | None:
    """Return the newest of the current snapshot and its ancestors that has a property, None where none ever had.

    Raises:
        WarehouseError: older snapshots, which may have had it, are expired; to begin anew would double rows.
    """
    snapshot = None
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        if snapshot.summary is not None and snapshot.summary[name] is not None:
            return snapshot
    if snapshot is not None and (snapshot.sequence_number or 0) > 1:
        raise WarehouseError(
            f"{'.'.join(table.name())} has no snapshot left with {name}: roll it back to a snapshot of a load, or expire fewer."
        )
    return None


def summary_json(snapshot: Snapshot | None, name: str) -> Any:
    """Return a snapshot's property as JSON, an empty object where there is none."""
    if snapshot is None or snapshot.summary is None:
        return {}
    return json.loads(snapshot.summary[name] or "{}")


def nested(values: Mapping[TopicPartition, Any]) -> str:
    """Write values by topic and partition as the summary's compact JSON."""
    topics: dict[str, dict[str, Any]] = {}
    for partition in sorted(values):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = values[partition]
    return json.dumps(topics, separators=(",", ":"))


def arrivals(catalog: Catalog, name: str) -> pa.Table:
    """Return when each range of offsets became visible in the table, in the order of commits.

    Columns: `topic` (the whole name, `<datacenter>.<topic>`), `partition`, `first_offset`, `next_offset`,
    `committed_at_ms`. The history is read before the table, so a commit that is archived in between appears once.

    Raises:
        WarehouseError: there is no such table.
    """
    archived, known_up_to = _archived(catalog, name)
    table = load_table(catalog, name)
    live = rows_of(name, (item for item in table.snapshots() if (item.sequence_number or 0) > known_up_to))
    return pa.concat_tables([archived, live]).drop_columns(["table"])


def rows_of(name: str, snapshots: Iterable[Snapshot]) -> pa.Table:
    """Return the history rows of snapshots."""
    rows = [
        {
            "table": name,
            "topic": topic,
            "partition": int(partition),
            "first_offset": first,
            "next_offset": following,
            "committed_at_ms": snapshot.timestamp_ms,
        }
        for snapshot in sorted(snapshots, key=lambda item: item.sequence_number or 0)
        for topic, partitions in summary_json(snapshot, OFFSETS).items()
        for partition, (first, following) in partitions.items()
    ]
    return pa.Table.from_pylist(rows, schema=LOAD_HISTORY_TABLE)


def archived_up_to(history: Table, name: str) -> int:
    """Return the sequence number up to which the history has a table's commits."""
    return int(summary_json(newest_with(history, ARCHIVED), ARCHIVED).get(name, 0))


def _archived(catalog: Catalog, name: str) -> tuple[pa.Table, int]:
    try:
        history = catalog.load_table(f"{NAMESPACE}.{LOAD_HISTORY}")
    except NoSuchTableError:
        return LOAD_HISTORY_TABLE.empty_table(), 0
    rows = history.scan(row_filter=f"table == '{name}'").to_arrow()
    ordered = rows.cast(LOAD_HISTORY_TABLE).sort_by("committed_at_ms")
    return ordered, archived_up_to(history, name)
