"""`spark.read.format("headrace")`: topics as a DataFrame, for ad hoc work.

    spark.dataSource.register(HeadraceDataSource)
    spark.read.format("headrace").option("bootstrap", "127.0.3.1:9092").option("topics", r"[^.]+\\.pageviews") \\
        .option("registry", "http://127.0.3.12:8081").load()

Owns reading alone: no table, no committed offset. With `registry` rows have the event's columns, taken from the latest
schema of each topic's subject and from those that the newest records of each partition use, and `_error` says why a
record has none (one with a time that `collect()` could not show, before the year 1 or after 9999, has none either);
without it they have `key` and `value` as bytes, and `headers`. Every other column is as in the
warehouse. Each partition is read from its log start to its end as both were when the DataFrame was made. A pattern that
no topic matches, and an option that there is not, is refused; topics without records make an empty DataFrame. Where
brokers or registry are secured, the option `command.config` names a properties file with Kafka's client settings about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.security import ClientSecurity
from headrace.broker.client.settings_file import client_settings
from headrace.events.registry_address import RegistryAddress
from headrace.load.avro_types import EventSchema, UnsupportedSchemaError, WriterSchema
from headrace.load.columns import RecordColumns
from headrace.load.decode import (
    FRAME_SIZE,
    NO_SCHEMA,
    TableShape,
    decode,
    grown,
    is_growing,
    no_frame_reason,
    schema_ids,
)
from headrace.load.headers import HEADERS_TYPE, bytes_column, headers_of
from headrace.load.log_client import LogClient
from headrace.load.names import ERROR, HEADERS, KEY
from headrace.load.newest_schemas import newest_schema_ids
from headrace.load.python_times import odd_rows, reason
from headrace.load.ranges import OffsetRange
from headrace.load.registry import SchemaRegistry, UnknownSchemaError
from headrace.load.source import chunks
from headrace.load.tables import OWN_FIELDS, PLACE_FIELDS
from headrace.load.task import distinct, own_columns, values_of

OPTIONS: Final = ("bootstrap", "topics", "registry", "command.config")
RAW: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", HEADERS_TYPE),
]
ERROR_FIELD: Final = pa.field(ERROR, pa.string())


class RangePartition(InputPartition):
    """One Kafka partition's range, read by one Spark task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class HeadraceDataSource(DataSource):
    """Options: `bootstrap`, `topics` (a regular expression for whole names), and optionally `registry` and `command.config`."""

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        schema: StructType = from_arrow_schema(self._reader().columns)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._reader()

    def _reader(self) -> HeadraceReader:
        unknown = sorted({name.lower() for name in self.options} - set(OPTIONS))
        if unknown:
            raise ValueError(
                f"the headrace source has no option {unknown[0]!r}, only {', '.join(OPTIONS)}; "
                "it reads each partition from its start to its end"
            )
        missing = [name for name in ("bootstrap", "topics") if not self.options.get(name)]
        if missing:
            raise ValueError(f'the headrace source needs .option("{missing[0]}", …)')
        settings = client_settings(self.options.get("command.config"))
        bootstrap = Bootstrap(self.options["bootstrap"], ClientSecurity.of(settings))
        urls = self.options.get("registry")
        registry = None if urls is None else RegistryAddress.of(urls, settings)
        return HeadraceReader(bootstrap, self.options["topics"], registry)


class HeadraceReader(DataSourceReader):
    """Plans when it is made, so that schema and ranges belong together; reads in Spark's workers."""

    def __init__(self, bootstrap: Bootstrap, pattern: str, registry: RegistryAddress | None) -> None:
        self._bootstrap = bootstrap
        self._registry = registry
        wanted = _pattern(pattern)
        client = LogClient(bootstrap, client_id="headrace-read")
        partitions = client.partitions(lambda topic: wanted.fullmatch(topic) is not None)
        if not partitions:
            raise ValueError(
                f"no topic of {bootstrap} has a whole name that matches {pattern!r}; `headrace topics list` shows those it has"
            )
        self._ranges = [
            OffsetRange(topic=place.topic, partition=place.partition, first_offset=start, next_offset=end)
            for place, (start, end) in client.log_offsets(partitions).items()
            if end > start
        ]
        topics = sorted({place.topic for place in partitions})
        self._shape = (
            None if registry is None else _shape(client, SchemaRegistry(registry), topics, self._ranges)
        )
        client.close()

    @property
    def columns(self) -> pa.Schema:
        if self._shape is None:
            return pa.schema([*PLACE_FIELDS, *RAW])
        return pa.schema([*OWN_FIELDS, *self._shape.columns, ERROR_FIELD])

    def partitions(self) -> Sequence[InputPartition]:
        return [RangePartition(wanted) for wanted in self._ranges]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Yield a partition's rows; Spark asks for None where `partitions` has none."""
        if partition is None:
            return
        assert isinstance(partition, RangePartition)
        client = LogClient(self._bootstrap, client_id="headrace-read")
        registry = SchemaRegistry(self._registry) if self._registry is not None else None
        for chunk in chunks(client, partition.wanted):
            for records in chunk.records:
                for rows in self._rows(records, partition.wanted, registry):
                    yield from rows.to_batches()
        client.close()

    def _rows(
        self, records: RecordColumns, wanted: OffsetRange, registry: SchemaRegistry | None
    ) -> Iterator[pa.Table]:
        if registry is None or self._shape is None:
            everything = np.arange(len(records.offset))
            own = self._own(records, everything, wanted)
            value = bytes_column(records.data, records.value_start, records.value_size)
            raw = {"key": own[KEY], "value": value, "headers": own[HEADERS]}
            yield self._table(own | raw, len(everything))
            return
        ids = schema_ids(records)
        for schema_id in distinct(ids):
            yield from self._decoded(
                records, wanted, registry, self._shape, schema_id, np.flatnonzero(ids == schema_id)
            )

    def _decoded(
        self,
        records: RecordColumns,
        wanted: OffsetRange,
        registry: SchemaRegistry,
        shape: TableShape,
        schema_id: int,
        chosen: Any,
    ) -> Iterator[pa.Table]:
        values = values_of(records.data, records.value_start[chosen], records.value_size[chosen])
        if schema_id == NO_SCHEMA:
            reasons = [no_frame_reason(value) for value in values]
            yield self._failed(records, wanted, chosen, reasons)
            return
        try:
            schema = registry.schema(wanted.topic, schema_id).named(shape.columns)
            if is_growing(schema, shape):
                raise UnsupportedSchemaError(
                    f"schema {schema_id} has fields that neither the latest schema nor the newest records have"
                )
        except (UnsupportedSchemaError, UnknownSchemaError) as error:
            yield self._failed(records, wanted, chosen, [str(error)] * len(chosen))
            return
        decoded = decode([value[FRAME_SIZE:] for value in values if value is not None], schema, shape)
        odd = odd_rows(decoded.rows)
        rows, kept = (
            (decoded.rows.filter(~odd), decoded.kept[~odd]) if odd.any() else (decoded.rows, decoded.kept)
        )
        event = {name: rows.column(name) for name in rows.column_names}
        yield self._table(self._own(records, chosen[kept], wanted) | event, len(kept))
        if odd.any():
            reasons = [reason(decoded.rows, index) for index in np.flatnonzero(odd).tolist()]
            yield self._failed(records, wanted, chosen[decoded.kept[odd]], reasons)
        if decoded.bad:
            places = chosen[list(decoded.bad)]
            yield self._failed(records, wanted, places, list(decoded.bad.values()))

    def _failed(
        self, records: RecordColumns, wanted: OffsetRange, chosen: Any, reasons: list[str]
    ) -> pa.Table:
        return self._table(self._own(records, chosen, wanted) | {ERROR: pa.array(reasons)}, len(chosen))

    def _own(self, records: RecordColumns, chosen: Any, wanted: OffsetRange) -> dict[str, pa.Array]:
        return own_columns(records, chosen, wanted, headers_of(records, len(records.offset)))

    def _table(self, columns: dict[str, Any], count: int) -> pa.Table:
        arrays = [
            columns[item.name] if item.name in columns else pa.nulls(count, item.type)
            for item in self.columns
        ]
        return pa.Table.from_arrays(arrays, schema=self.columns)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"the option topics is no regular expression: {text!r} ({error})") from error


def _shape(
    client: LogClient, registry: SchemaRegistry, topics: Sequence[str], ranges: Sequence[OffsetRange]
) -> TableShape:
    """Unite the columns of the topics' latest schemas in the registry and of those that the newest records use."""
    found: list[WriterSchema] = []
    for topic in topics:
        latest = registry.latest(topic)
        found += [] if latest is None else latest.records
    for wanted in ranges:
        schemas = _Schemas(registry, wanted.topic)
        for each in newest_schema_ids(client, wanted, schemas.is_known):
            found += schemas.known[each].records
    shape = TableShape(columns=pa.schema([]))
    for schema in found:
        shape = _grown(shape, schema)
    return shape


def _grown(shape: TableShape, schema: WriterSchema) -> TableShape:
    """Return a shape with a schema's columns too; of two that no column can hold both, those of the later schema."""
    try:
        return grown(shape, schema)
    except UnsupportedSchemaError:
        named = schema.named(shape.columns)
        fields = {item.name: item for item in (*shape.columns, *named.table_fields)}
        return TableShape(
            columns=pa.schema(list(fields.values())), defaults={**shape.defaults, **named.defaults}
        )


class _Schemas:
    """A topic's schemas that could be decoded with."""

    def __init__(self, registry: SchemaRegistry, topic: str) -> None:
        self._registry = registry
        self._topic = topic
        self.known: dict[int, EventSchema] = {}

    def is_known(self, schema_id: int) -> bool:
        try:
            self.known[schema_id] = self._registry.schema(self._topic, schema_id)
        except (UnsupportedSchemaError, UnknownSchemaError):
            return False
        return True
