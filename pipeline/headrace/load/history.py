"""What the table's snapshots say of offsets: how far it is loaded, and when which offsets arrived.

Owns these properties in the summary of each snapshot of an event table:
- `headrace.positions`: `{topic: {partition: next offset}}`, everything that the table holds;
- `headrace.fences`: `{topic: {partition: [leader epoch, base offset, next offset, checksum]}}`, the last batch that was
  read below each position (see `fences`); a position from before there were fences has none until its next load;
- `headrace.topics`: `{topic: id}` and `headrace.clusters`: `{topic: cluster id}`, whose offsets these are;
- `headrace.offsets`: `{topic: {partition: [first, next]}}`, what this commit brought; its arrival time is the
  snapshot's time;
- `headrace.dead-letters`: paths of the commit's dead-letter files (see `commit`).

Positions live in the newest snapshot that has them, which never expires: what others commit above it (a delete, a
compaction) says nothing of offsets and takes nothing from them. Arrivals of other snapshots are copied to the table
`warehouse.load_history` before those expire; that table's own snapshot says up to which sequence number
(`headrace.archived`), so `arrivals` counts each commit once whatever dies in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from headrace.load.fences import Fence
from headrace.load.ranges import TopicPartition
from headrace.load.tables import LOAD_HISTORY, LOAD_HISTORY_TABLE, NAMESPACE, WarehouseError, load_table

POSITIONS: Final = "headrace.positions"
OFFSETS: Final = "headrace.offsets"
FENCES: Final = "headrace.fences"
TOPICS: Final = "headrace.topics"
CLUSTERS: Final = "headrace.clusters"
DEAD_LETTER_FILES: Final = "headrace.dead-letters"
ARCHIVED: Final = "headrace.archived"
NO_TOPIC_ID: Final = str(UUID(int=0))
"""What brokers from before topic ids give in answers that have a place for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How far the table is loaded, and what tells that a log is the one it was loaded from."""

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    fences: Mapping[TopicPartition, Fence] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)

    def strangers(self, cluster: str | None, topic_ids: Mapping[str, str]) -> dict[str, str]:
        """Return the topics that are not those that were loaded, by what the brokers say now, each with a reason."""
        found: dict[str, str] = {}
        for topic, known in self.topic_ids.items():
            if topic_ids.get(topic, known) != known:
                found[topic] = (
                    f"the topic was deleted and made anew since it was loaded (its id was {known}, now it is "
                    f"{topic_ids[topic]}), so its offsets mean other records"
                )
        for topic, known in self.clusters.items():
            if cluster not in (None, known):
                found[topic] = (
                    f"it was loaded from cluster {known}, and these brokers are of cluster {cluster}, where the same "
                    "offsets may mean other records"
                )
        return found

    def summary(self) -> dict[str, str]:
        """Return the properties of a snapshot that hold all this."""
        return {
            POSITIONS: nested(self.positions),
            FENCES: nested(self.fences),
            TOPICS: json.dumps(dict(self.topic_ids), separators=(",", ":")),
            CLUSTERS: json.dumps(dict(self.clusters), separators=(",", ":")),
        }


def held(table: Table) -> Held:
    """Return what the newest snapshot of a load says of positions."""
    snapshot = newest_with(table, POSITIONS)
    ids = summary_json(snapshot, TOPICS)
    return Held(
        positions=_by_partition(summary_json(snapshot, POSITIONS)),
        fences={
            place: Fence(*fields) for place, fields in _by_partition(summary_json(snapshot, FENCES)).items()
        },
        topic_ids={topic: known for topic, known in ids.items() if known != NO_TOPIC_ID},
        clusters=summary_json(snapshot, CLUSTERS),
    )


def positions(table: Table) -> Mapping[TopicPartition, int]:
    """Return the next offset to load of every partition that the table has ever loaded."""
    return held(table).positions


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


def _by_partition(topics: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, Any]:
    """Undo `nested`."""
    return {
        TopicPartition(topic, int(partition)): value
        for topic, partitions in topics.items()
        for partition, value in partitions.items()
    }


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
