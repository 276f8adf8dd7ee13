"""Which letters of a topic could be rows now, and which of these rows one snapshot of their table lacks.

Invariant: a letter is one of those that are new, those that have a row, and those with a reason to stay. Must not write.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyiceberg.expressions import In
from pyiceberg.table import Table

from headrace.broker.wire.partitions import TopicPartition
from headrace.load import history
from headrace.load.avro_types import EventSchema, UnsupportedSchemaError
from headrace.load.decode import TableShape, grown, is_growing
from headrace.load.letters import Decoded, LetterPlace, Schemas, decode_letters, places
from headrace.load.names import (
    DATACENTER,
    LIFE,
    OFFSET,
    OWN_COLUMNS,
    TOPIC,
    partition_column,
)
from headrace.load.tables import arrow_schema, shape_of

ONE_OF: Final[Any] = In
"""Typed as its fields are, of which it takes others."""
NOT_REACHED: Final = "the load has not reached this offset of the table yet, and brings it itself"


class Source(NamedTuple):
    """Whose letters: a topic by its name in its datacenter."""

    datacenter: str
    topic: str

    @property
    def name(self) -> str:
        return f"{self.datacenter}.{self.topic}" if self.datacenter else self.topic


class LookedAt(NamedTuple):
    """What a slice of a topic's letters is, as one snapshot of its table has it."""

    decoded: Decoded
    new: list[int]
    """Which rows the table lacks."""
    had_rows: set[int]
    """Letters whose row the table has."""


def look_at(table: Table, source: Source, letters: pa.Table, ids: list[int], asked: Schemas) -> LookedAt:
    """Decode letters, and find which of the rows the table's snapshot lacks."""
    columns, fitting = arrow_schema(table), dict(asked)
    for schema_id, schema in asked.items():
        if not isinstance(schema, str):
            fitting[schema_id], columns = _fitting(schema, table, columns)
    decoded = decode_letters(letters, ids, fitting, _shape(table, columns), columns)
    return _found(decoded, places(letters), _present(table, source, letters), _Reached(table, source.name))


def _fitting(schema: EventSchema, table: Table, columns: pa.Schema) -> tuple[EventSchema | str, pa.Schema]:
    """Return a schema with its fields called as the columns, and the columns with what they lack where the redrive is dry."""
    shape = _shape(table, columns)
    try:
        wider = grown(shape, schema)
        columns = pa.unify_schemas([columns, wider.columns], promote_options="permissive")
        return schema.named(wider.columns), columns
    except UnsupportedSchemaError as error:
        return f"schema {schema.schema_id}: {error}", columns


def _shape(table: Table, columns: pa.Schema) -> TableShape:
    events = [item for item in columns if item.name not in OWN_COLUMNS]
    return TableShape(columns=pa.schema(events), defaults=shape_of(table).defaults)


class _Reached:
    """Which places a table's snapshot says that the load has behind it."""

    def __init__(self, table: Table, topic: str) -> None:
        self._held = history.held(table)
        self._topic = topic

    def has(self, place: LetterPlace) -> bool:
        partition = TopicPartition(self._topic, place.partition)
        life = self._held.lives.get(partition, 0)
        return place.life < life or (
            place.life == life and place.offset < self._held.positions.get(partition, 0)
        )


def _found(
    decoded: Decoded, where: list[LetterPlace], present: set[LetterPlace], reached: _Reached
) -> LookedAt:
    new: dict[LetterPlace, int] = {}
    had_rows = {index for index in decoded.bad if where[index] in present and index not in decoded.unfit}
    for position, index in enumerate(decoded.kept):
        place = where[index]
        if place in present or place in new:
            had_rows.add(index)
        elif not reached.has(place):
            decoded.bad[index] = NOT_REACHED
        else:
            new[place] = position
    return LookedAt(decoded, list(new.values()), had_rows)


def _present(table: Table, source: Source, letters: pa.Table) -> set[LetterPlace]:
    """Return which letters' places have a row."""
    names = table.schema().column_names
    partition = partition_column(names)
    offsets = letters.column(OFFSET).to_pylist()
    chosen = (
        f"{DATACENTER} = '{source.datacenter}' and {TOPIC} = '{source.topic}' "
        f"and {OFFSET} >= {min(offsets)} and {OFFSET} <= {max(offsets)}"
    )
    wanted = (partition, OFFSET, *((LIFE,) if LIFE in names else ()))
    scan = table.scan(row_filter=chosen, selected_fields=wanted).filter(ONE_OF(OFFSET, set(offsets)))
    return set(places(scan.to_arrow(), partition))


def grows(schema: EventSchema, shape: TableShape) -> bool:
    """Return whether a schema has what a table of this shape lacks, and can have."""
    with suppress(UnsupportedSchemaError):
        return is_growing(schema.named(shape.columns), shape)
    return False
