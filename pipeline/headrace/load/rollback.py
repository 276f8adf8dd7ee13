"""Dead letters of loads that somebody took back by a rollback of their table.

Owns which letters these are: those behind the table's positions, which the load reads again. A rollback leaves a load's
snapshot that is younger than the last load's of the table's history, until the load goes on. Must not know brokers.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.broker.wire.partitions import TopicPartition
from headrace.load import history
from headrace.load.names import DATACENTER, LIFE, OFFSET, TOPIC, TOPIC_PARTITION
from headrace.load.tables import split_topic


def letters_taken_back(table: Table, last_load: Snapshot, *, has_lives: bool) -> str | None:
    """Return a filter of the dead letters that come again after a rollback; None without one, or once the load went on.

    Args:
        last_load: the newest load's snapshot in the history of the table's current one.
        has_lives: whether the letters have the column of a partition's lives.
    """
    places = _loaded_by(_taken_back(table, last_load))
    if not places:
        return None
    held = history.held(table)
    return " or ".join(_behind(held, place, has_lives=has_lives) for place in sorted(places))


def _taken_back(table: Table, last_load: Snapshot) -> list[Snapshot]:
    known = last_load.sequence_number or 0
    return [
        item for item in table.snapshots() if (item.sequence_number or 0) > known and history.is_load(item)
    ]


def _loaded_by(snapshots: Iterable[Snapshot]) -> set[TopicPartition]:
    return {place for snapshot in snapshots for place in history.positions_in(snapshot)}


def _behind(held: history.Held, place: TopicPartition, *, has_lives: bool) -> str:
    """Return a filter of a partition's letters behind where its table stands; pyiceberg would delete where it is null, too."""
    datacenter, topic = split_topic(place.topic)
    behind = f"{OFFSET} >= {held.positions.get(place, 0)}"
    if has_lives:
        life = held.lives.get(place, 0)
        in_life = f"({LIFE} is not null and {LIFE} = {life})" if life else f"{LIFE} is null"
        behind = f"(({LIFE} is not null and {LIFE} > {life}) or ({in_life} and {behind}))"
    return f"({DATACENTER} = '{datacenter}' and {TOPIC} = '{topic}' and {TOPIC_PARTITION} = {place.partition} and {behind})"
