"""Tables that an older release made get today's columns: a change of metadata alone, in one compare-and-set.

Owns what older tables look like. Invariants: a column keeps its field id, so files, snapshots and statistics stay as they
are and a reader finds the same values before and after; of two drivers that do it at once one is refused, and finds it
done; a table that no load made is left alone. Must not know offsets or brokers.
"""

from __future__ import annotations

from pyiceberg.table import Table

from headrace.load.names import (
    DATACENTER,
    FORMER_PARTITION,
    OFFSET,
    TIMESTAMP,
    TOPIC,
    TOPIC_PARTITION,
    partition_column,
)


def upgrade(table: Table) -> bool:
    """Give a table today's columns; False when it has them, or is none that a load writes.

    Raises:
        CommitFailedException: somebody else changed the table meanwhile; load it again.
    """
    names = {item.name for item in table.schema().fields if item.required}
    if not {DATACENTER, TOPIC, OFFSET, TIMESTAMP} <= names or partition_column(names) != FORMER_PARTITION:
        return False
    with table.update_schema() as update:
        update.rename_column(FORMER_PARTITION, TOPIC_PARTITION)
    return True
