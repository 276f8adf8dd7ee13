"""A table grows for the schema of events that it is about to get, and for the newest one of their topic.

Owns the order: both schemas are asked for before anything changes, so that a registry that is away changes nothing. A field
that has no column yet and has several types in the newest schema gets a column for several, whatever the events have.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.load import tables
from headrace.load.avro_types import NOTHING_AHEAD, EventSchema, UnsupportedSchemaError
from headrace.load.decode import is_growing
from headrace.load.registry import SchemaRegistry


def grow(catalog: Catalog, name: str, registry: SchemaRegistry, topic: str, schema_id: int) -> None:
    """Give a table what a schema's events need.

    Raises:
        RegistryUnreachableError, UnknownSchemaError, UnsupportedSchemaError
        CommitFailedException: somebody else changed the table meanwhile; ask again.
    """
    wanted, newest = registry.schema(topic, schema_id), registry.latest(topic)
    table = tables.ensure_table(catalog, name)
    ahead = NOTHING_AHEAD if newest is None else newest.named(tables.shape_of(table).columns).unions
    _evolve(table, wanted, ahead)
    if newest is not None:
        # Before older events are loaded, so that these get its defaults.
        _evolve(tables.ensure_table(catalog, name), newest, NOTHING_AHEAD)


def _evolve(table: Table, schema: EventSchema, ahead: pa.Schema) -> None:
    """Give a table the columns of each of a schema's records whose fields it can hold."""
    for record in schema.records:
        shape = tables.shape_of(table)
        with suppress(UnsupportedSchemaError):
            if is_growing(record.named(shape.columns, ahead), shape):
                tables.evolve(table, record, ahead)
