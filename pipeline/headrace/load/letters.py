"""Dead letters that decode now become the rows that the load would have given them.

Owns which letters can be rows at all, and the rows' values. Invariants: every letter given is a row or has a reason, once;
a batch that does not parse and a record whose headers do not parse stay letters, since neither is whole in its letter. Pure:
must not know registries, snapshots or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headrace.broker.wire.batches import HEADER_SIZE, MAGIC, read_header
from headrace.load.avro_types import EventSchema
from headrace.load.decode import FRAME_SIZE, NO_SCHEMA, TableShape, decode, no_frame_reason
from headrace.load.headers import BAD_HEADERS
from headrace.load.names import DATACENTER, HEADERS, KEY, LIFE, OFFSET, TIMESTAMP, TOPIC, TOPIC_PARTITION

LAST_OFFSET: Final = "_last_offset"
REASON: Final = "_reason"
COLUMN_OF_LETTER: Final = {
    **{name: name for name in (DATACENTER, TOPIC, TOPIC_PARTITION, OFFSET, TIMESTAMP, LIFE)},
    KEY: "key",
    HEADERS: "headers",
}
"""Which column of a letter a table's own column is."""
_LOOKED_AT: Final = (OFFSET, LAST_OFFSET, REASON, "value")

Schemas = Mapping[int, EventSchema | str]
"""By id: a schema with its fields called as the table's columns, or why it is of no use."""


class LetterPlace(NamedTuple):
    """Where a letter or a row was in its topic."""

    partition: int
    offset: int
    life: int


class Decoded(NamedTuple):
    """Rows, the index of each one's letter, and by the index of every other letter why it has none."""

    rows: pa.Table
    kept: list[int]
    bad: dict[int, str]
    unfit: set[int]
    """Those of the latter that no schema makes rows of."""


def schema_ids(letters: pa.Table) -> list[int]:
    """Return each letter's schema id, `NO_SCHEMA` where it can be no row."""
    return [_schema_id(letter) for letter in letters.select(_LOOKED_AT).to_pylist()]


def decode_letters(
    letters: pa.Table, ids: list[int], schemas: Schemas, shape: TableShape, columns: pa.Schema
) -> Decoded:
    """Decode letters of one topic.

    Args:
        ids: what `schema_ids` says of them.
        shape: the events' columns of their table.
        columns: all columns of their table.
    """
    told = letters.select(_LOOKED_AT).to_pylist()
    values = [letter["value"] for letter in told]
    bad = {index: _reason(told[index]) for index, known in enumerate(ids) if known == NO_SCHEMA}
    unfit = set(bad)
    tables, kept = [columns.empty_table()], list[int]()
    for schema_id, schema in schemas.items():
        chosen = [index for index, known in enumerate(ids) if known == schema_id]
        if isinstance(schema, str):
            bad |= dict.fromkeys(chosen, schema)
            continue
        found = decode([values[index][FRAME_SIZE:] for index in chosen], schema, shape)
        bad |= {chosen[index]: why for index, why in found.bad.items()}
        members = [chosen[index] for index in found.kept.tolist()]
        tables.append(_with_own_columns(found.rows, letters.take(pa.array(members, pa.int64())), columns))
        kept += members
    return Decoded(pa.concat_tables(tables), kept, bad, unfit)


def places(rows: pa.Table, partition: str = TOPIC_PARTITION) -> list[LetterPlace]:
    """Return where letters or rows were; `partition` is what the partition's column is called."""
    lives = rows.column(LIFE).to_pylist() if LIFE in rows.column_names else [None] * len(rows)
    partitions, offsets = (rows.column(name).to_pylist() for name in (partition, OFFSET))
    return [
        LetterPlace(number, offset, life or 0)
        for number, offset, life in zip(partitions, offsets, lives, strict=True)
    ]


def _schema_id(letter: Mapping[str, Any]) -> int:
    value = letter["value"]
    is_framed = value is not None and len(value) >= FRAME_SIZE and value[0] == 0
    return int.from_bytes(value[1:FRAME_SIZE], "big") if is_framed and _is_whole(letter) else NO_SCHEMA


def _reason(letter: Mapping[str, Any]) -> str:
    """Return why a letter without a schema has no row."""
    return no_frame_reason(letter["value"]) if _is_whole(letter) else letter[REASON]


def _is_whole(letter: Mapping[str, Any]) -> bool:
    """Whether a letter is a record with all that it had; a batch that does not parse knows its own size."""
    if letter[LAST_OFFSET] != letter[OFFSET] or letter[REASON] == BAD_HEADERS:
        return False
    value = letter["value"]
    if value is None or len(value) < HEADER_SIZE:
        return True
    header = read_header(value)
    return header.magic != MAGIC or header.size != len(value)


def _with_own_columns(rows: pa.Table, letters: pa.Table, columns: pa.Schema) -> pa.Table:
    arrays = [
        letters.column(COLUMN_OF_LETTER[item.name]).cast(item.type)
        if item.name in COLUMN_OF_LETTER
        else rows.column(item.name)
        for item in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)
