"""Tables that an older release made get today's columns: a change of metadata alone, in one compare-and-set.

Owns what older tables look like. Invariants: a column keeps its field id, so files, snapshots and statistics stay as they
are and a reader finds the same values before and after; of two drivers that do it at once one is refused, and finds it
done; a table that no load made is left alone; a table is upgraded once, which its property `headrace.layout` says. Must
not know offsets or brokers.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, Transaction

from headrace.load.defaults import as_properties, read_defaults
from headrace.load.names import (
    DATACENTER,
    OFFSET,
    TIMESTAMP,
    TOPIC,
    TOPIC_PARTITION,
    new_names,
    partition_column,
    renamed_defaults,
)

LAYOUT_PROPERTY: Final = "headrace.layout"
LAYOUT: Final = "2"


def upgrade(table: Table, columns: pa.Schema) -> bool:
    """Give a table today's columns; False when it has them, or is none that a load writes.

    Args:
        columns: the columns of such a table; those that it lacks are put where they are in there.

    Raises:
        CommitFailedException: somebody else changed the table meanwhile; load it again.
    """
    if table.properties.get(LAYOUT_PROPERTY) == LAYOUT or not _is_of_a_load(table):
        return False
    optional = [item for item in schema_to_pyarrow(table.schema()) if item.nullable]
    names = new_names(pa.struct(optional), None)
    own = {} if _partition_name(table) == TOPIC_PARTITION else {_partition_name(table): TOPIC_PARTITION}
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            for path, name in {**names, **own}.items():
                update.rename_column(path.replace("[]", ".element").replace("{}", ".value"), name)
        _add_missing(transaction, columns)
        defaults = renamed_defaults(read_defaults(table.properties), names)
        transaction.set_properties({LAYOUT_PROPERTY: LAYOUT, **as_properties(defaults)})
    return True


def _is_of_a_load(table: Table) -> bool:
    """True for a table of events or dead letters: a load's own columns alone are required."""
    required = {item.name for item in table.schema().fields if item.required}
    return {DATACENTER, TOPIC, _partition_name(table), OFFSET, TIMESTAMP} <= required


def _partition_name(table: Table) -> str:
    return partition_column(item.name for item in table.schema().fields if item.required)


def _add_missing(transaction: Transaction, columns: pa.Schema) -> None:
    with transaction.update_schema() as update:
        present = set(transaction.table_metadata.schema().column_names)
        missing = [item for item in columns if item.name not in present]
        update.union_by_name(pa.schema(missing))
        for item in missing:
            before = columns.field(columns.get_field_index(item.name) - 1)
            update.move_after(item.name, before.name)
