"""A table grows for the schema of events that it is about to get, and for the newest one of their topic.

Owns the order: both schemas are asked for before anything changes, so that a registry that is away changes nothing. A field
that has no column yet and has several types in the newest schema gets a column for several, whatever the events have.
"""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.catalog import Catalog

from headrace.load import tables
from headrace.load.avro_types import NOTHING_AHEAD, UnsupportedSchemaError, WriterSchema
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
    tables.evolve(table, wanted, ahead)
    _grow_ahead(catalog, name, newest)


def _grow_ahead(catalog: Catalog, name: str, newest: WriterSchema | None) -> None:
    """Give the table the newest schema's fields before older events are loaded, so that these get its defaults."""
    table = tables.ensure_table(catalog, name)
    shape = tables.shape_of(table)
    with suppress(UnsupportedSchemaError):
        if newest is not None and is_growing(newest.named(shape.columns), shape):
            tables.evolve(table, newest)
