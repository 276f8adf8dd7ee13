"""What the table's snapshots say of offsets: how far it is loaded, and when which offsets arrived.

Owns these properties in the summary of each snapshot of an event table:
- `headrace.positions`: `{topic: {partition: next offset}}`, everything that the table holds;
- `headrace.fences`: `{topic: {partition: [leader epoch, base offset, next offset, checksum]}}`, the last batch that was
  read below each position (see `fences`); a position from before there were fences has none until its next load;
- `headrace.topics`: `{topic: id}` and `headrace.clusters`: `{topic: cluster id}`, whose offsets these are, but for
  `headrace.former`: `{topic: {partition: [cluster id, topic id]}}`, where other partitions of the topic went on in a new one;
- `headrace.lives`: `{topic: {partition: number}}`, where a partition went on in another log, how often;
- `headrace.passed`: `{topic: {partition: [first, next, kind, reason, life]}}`, where this commit lets a partition go on that
  stood still (see `ranges.Passing`);
- `headrace.offsets`: `{topic: {partition: [first, next]}}`, what this commit brought; its arrival time is the
  snapshot's time;
- `headrace.host`: the host whose clock that is;
- `headrace.dead-letters`: paths of the commit's dead-letter files (see `commit`);
- `headrace.redriven`: `{path of rows: path of letters}`, of a snapshot without the others: its rows were dead letters of that
  file, and still are ones as long as `dead_letter` has the file (see `redrive`).

Positions live in the newest snapshot that has them, which no load expires: what others commit above it (a delete, a
compaction) says nothing of offsets and takes nothing from them. Where others expire it, older metadata still tells of it.
Arrivals and passings of other snapshots are copied to the table `warehouse.load_history` before those expire; that table's
own snapshot says up to which sequence number (`headrace.archived`), so `arrivals` counts each commit once whatever dies in
between.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.broker.wire.partitions import TopicPartition
from headrace.load.fences import Fence
from headrace.load.ranges import Passing
from headrace.load.tables import (
    LOAD_HISTORY,
    LOAD_HISTORY_TABLE,
    NAMESPACE,
    WarehouseError,
    in_columns,
    load_table,
)

POSITIONS: Final = "headrace.positions"
OFFSETS: Final = "headrace.offsets"
FENCES: Final = "headrace.fences"
TOPICS: Final = "headrace.topics"
CLUSTERS: Final = "headrace.clusters"
FORMER: Final = "headrace.former"
LIVES: Final = "headrace.lives"
PASSED: Final = "headrace.passed"
HOST: Final = "headrace.host"
DEAD_LETTER_FILES: Final = "headrace.dead-letters"
REDRIVEN: Final = "headrace.redriven"
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
    former: Mapping[TopicPartition, tuple[str | None, str | None]] = field(default_factory=dict)
    lives: Mapping[TopicPartition, int] = field(default_factory=dict)

    def identity(self, place: TopicPartition) -> tuple[str | None, str | None]:
        """Return the ids of the cluster and of the topic that a partition was loaded from, as far as they are known."""
        return self.former.get(place, (self.clusters.get(place.topic), self.topic_ids.get(place.topic)))

    def strangers(
        self, cluster: str | None, topic_ids: Mapping[str, str], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, str]:
        """Return the partitions of other topics than were loaded, by what the brokers say now, each with a reason."""
        found: dict[TopicPartition, str] = {}
        for place in partitions:
            known_cluster, known_id = self.identity(place)
            now_id = topic_ids.get(place.topic, known_id)
            if cluster is not None and known_cluster not in (None, cluster):
                found[place] = (
                    f"it was loaded from cluster {known_cluster}, and these brokers are of cluster {cluster}, where the "
                    "same offsets may mean other records"
                )
            elif known_id not in (None, now_id):
                found[place] = (
                    f"the topic was deleted and made anew since it was loaded (its id was {known_id}, now it is "
                    f"{now_id}), so its offsets mean other records"
                )
        return found

    def after(self, passing: Passing, cluster: str | None, topic_id: str | None) -> Held:
        """Return what is held once a partition goes on; in a new life it belongs to the topic that there is now."""
        place = passing.topic_partition
        moved = replace(self, positions={**self.positions, place: passing.next_offset})
        if not passing.is_new_life:
            return moved
        others = {other for other in self.positions if other.topic == place.topic and other != place}
        former = dict(self.former)
        former |= {
            other: self.identity(other) for other in others if self.identity(other) != (cluster, topic_id)
        }
        former.pop(place, None)
        return replace(
            moved,
            fences={other: fence for other, fence in self.fences.items() if other != place},
            lives={**self.lives, place: passing.life},
            former=former,
            topic_ids=_with(self.topic_ids, place.topic, topic_id),
            clusters=_with(self.clusters, place.topic, cluster),
        )

    def summary(self) -> dict[str, str]:
        """Return the properties of a snapshot that hold all this."""
        return {
            POSITIONS: nested(self.positions),
            FENCES: nested(self.fences),
            TOPICS: json.dumps(dict(self.topic_ids), separators=(",", ":")),
            CLUSTERS: json.dumps(dict(self.clusters), separators=(",", ":")),
            **({FORMER: nested(self.former)} if self.former else {}),
            **({LIVES: nested(self.lives)} if self.lives else {}),
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
        former={
            place: (known_cluster, known_id)
            for place, (known_cluster, known_id) in _by_partition(summary_json(snapshot, FORMER)).items()
        },
        lives=_by_partition(summary_json(snapshot, LIVES)),
    )


def _with(ids: Mapping[str, str], topic: str, known: str | None) -> dict[str, str]:
    """Return the ids with a topic's, or without it where none is known."""
    rest = {other: item for other, item in ids.items() if other != topic}
    return rest if known is None else {**rest, topic: known}


def fence_in(snapshot: Snapshot, place: TopicPartition) -> Fence | None:
    """Return the fence of one partition in one snapshot."""
    fields = summary_json(snapshot, FENCES).get(place.topic, {}).get(str(place.partition))
    return None if fields is None else Fence(*fields)


def positions(table: Table) -> Mapping[TopicPartition, int]:
    """Return the next offset to load of every partition that the table has ever loaded."""
    return held(table).positions


def newest_with(table: Table, name: str) -> Snapshot | None:
    """Return the newest of the current snapshot and its ancestors that has a property, None where none ever had.

    Raises:
        WarehouseError: older snapshots, which may have had it, are expired; to begin anew would double rows.
    """
    snapshot = None
    for snapshot in _ancestors(table):
        if snapshot.summary is not None and snapshot.summary[name] is not None:
            return snapshot
    if snapshot is not None and (snapshot.sequence_number or 0) > 1:
        raise WarehouseError(
            f"{'.'.join(table.name())} has no snapshot left with {name}: roll it back to a snapshot of a load, or to metadata "
            "from before such snapshots expired"
        )
    return None


def _ancestors(table: Table) -> Iterator[Snapshot]:
    """Yield the current snapshot and those before it, also what others expired as long as older metadata tells of it."""
    lineage = _Lineage(table)
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = lineage.parent(snapshot)


class _Lineage:
    """Which snapshot follows which. To expire one takes it from its child, too, so older metadata is read where need be."""

    def __init__(self, table: Table) -> None:
        older = (_snapshots_in(table, entry.metadata_file) for entry in reversed(table.metadata.metadata_log))
        self._told = chain([table.snapshots()], older)
        self._known: dict[int, Snapshot] = {}
        self._parents: dict[int, int] = {}

    def parent(self, snapshot: Snapshot) -> Snapshot | None:
        """Return a snapshot's parent; None where it is the first, or no metadata tells of that one."""
        while (parent := self._parents.get(snapshot.snapshot_id)) not in self._known:
            told = None if snapshot.sequence_number == 1 else next(self._told, None)
            if told is None:
                return None
            self._known = {item.snapshot_id: item for item in told} | self._known
            self._parents = {
                item.snapshot_id: item.parent_snapshot_id
                for item in told
                if item.parent_snapshot_id is not None
            } | self._parents
        assert parent is not None
        return self._known[parent]


def _snapshots_in(table: Table, metadata_file: str) -> list[Snapshot]:
    """Return the snapshots that an older metadata file tells of; none where it is gone."""
    try:
        return FromInputFile.table_metadata(table.io.new_input(metadata_file)).snapshots
    except FileNotFoundError:
        return []


def is_load(snapshot: Snapshot) -> bool:
    """Return whether a snapshot says how far its table is loaded."""
    return snapshot.summary is not None and snapshot.summary[POSITIONS] is not None


def positions_in(snapshot: Snapshot) -> Mapping[TopicPartition, int]:
    """Return the next offset of every partition in one snapshot."""
    return _by_partition(summary_json(snapshot, POSITIONS))


def dead_letter_files(snapshot: Snapshot) -> list[str]:
    """Return the dead-letter files of one load's snapshot."""
    return list(summary_json(snapshot, DEAD_LETTER_FILES))


def host_of(snapshot: Snapshot) -> str:
    """Return the host that committed a snapshot; empty where the snapshot does not tell."""
    return (snapshot.summary[HOST] if snapshot.summary is not None else None) or ""


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
    """Return when each range of offsets became visible in the table or was passed over, in the order of commits.

    Columns: those of `tables.LOAD_HISTORY_TABLE` but for what names the table; `topic` is the whole name,
    `<datacenter>.<topic>`. `kind` and `reason` are null for what was loaded, and a passing's otherwise. The history is
    read before the table, so a commit that is archived in between appears once. What is archived of a table that was
    dropped and had this name is left out.

    Raises:
        WarehouseError: there is no such table.
    """
    archived, known = _archived(catalog, name)
    table = load_table(catalog, name)
    known_up_to = 0 if known is None else archived_up_to(known, table)
    live = rows_of(table, (item for item in table.snapshots() if (item.sequence_number or 0) > known_up_to))
    return pa.concat_tables([_own(archived, table), live]).drop_columns(["table", "table_uuid"])


def _own(rows: pa.Table, table: Table) -> pa.Table:
    """Return the rows of this very table; older releases archived rows without a uuid."""
    uuid = rows.column("table_uuid")
    return rows.filter(pc.or_kleene(pc.is_null(uuid), pc.equal(uuid, uuid_of(table))))


def uuid_of(table: Table) -> str:
    return str(table.metadata.table_uuid)


def passings(catalog: Catalog, name: str) -> list[Passing]:
    """Return every time that a person let a partition of the table go on, oldest first."""
    rows = arrivals(catalog, name)
    fields = rows.filter(pc.is_valid(rows.column("kind"))).drop_columns(["committed_at_ms"]).to_pylist()
    return [Passing(**item) for item in fields]


def rows_of(table: Table, snapshots: Iterable[Snapshot]) -> pa.Table:
    """Return the history rows of a table's snapshots."""
    named = {"table": table.name()[-1], "table_uuid": uuid_of(table)}
    rows = [
        {**named, "committed_at_ms": snapshot.timestamp_ms, **row}
        for snapshot in sorted(snapshots, key=lambda item: item.sequence_number or 0)
        for row in (*_loaded(snapshot), *map(asdict, passed_in(snapshot)))
    ]
    return pa.Table.from_pylist(rows, schema=LOAD_HISTORY_TABLE)


def passed_in(snapshot: Snapshot) -> list[Passing]:
    """Return what a snapshot let go on."""
    return [
        Passing(
            topic=place.topic,
            partition=place.partition,
            first_offset=first,
            next_offset=following,
            kind=kind,
            reason=reason,
            life=life,
        )
        for place, (first, following, kind, reason, life) in _by_partition(
            summary_json(snapshot, PASSED)
        ).items()
    ]


def redriven(table: Table) -> dict[str, str]:
    """Return the files of rows that were dead letters, each with the file of these letters."""
    return {
        rows: letters
        for snapshot in table.snapshots()
        for rows, letters in summary_json(snapshot, REDRIVEN).items()
    }


def passing_property(passing: Passing) -> dict[str, str]:
    fields = [passing.first_offset, passing.next_offset, passing.kind, passing.reason, passing.life]
    return {PASSED: nested({passing.topic_partition: fields})}


def _loaded(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    lives = _by_partition(summary_json(snapshot, LIVES))
    for place, (first, following) in _by_partition(summary_json(snapshot, OFFSETS)).items():
        yield {
            "topic": place.topic,
            "partition": place.partition,
            "first_offset": first,
            "next_offset": following,
            "life": lives.get(place, 0),
        }


def archived_up_to(history: Table, table: Table) -> int:
    """Return the sequence number up to which the history has a table's commits, not those of one that was dropped before it.

    Older releases knew a table by its name alone.
    """
    known = summary_json(newest_with(history, ARCHIVED), ARCHIVED)
    number = int(known.get(uuid_of(table), known.get(table.name()[-1], 0)))
    newest = max((item.sequence_number or 0 for item in table.snapshots()), default=0)
    return number if number <= newest else 0


def _archived(catalog: Catalog, name: str) -> tuple[pa.Table, Table | None]:
    """Return the history's rows of a table, in the order of commits, and the history as they were read from it."""
    try:
        history = catalog.load_table(f"{NAMESPACE}.{LOAD_HISTORY}")
    except NoSuchTableError:
        return LOAD_HISTORY_TABLE.empty_table(), None
    rows = history.scan(row_filter=f"table == '{name}'").to_arrow()
    order = [("committed_at_ms", "ascending"), ("life", "ascending")]
    return in_columns(rows, LOAD_HISTORY_TABLE).sort_by(order), history
