"""Of which columns Iceberg knows bounds in a file, by which a query leaves it unopened, and what these are.

Owns what pyiceberg 0.12 leaves out: parts of records, since `header.time` is what events are asked by (Iceberg has no bounds of
what lists and maps hold), and times that Python's `datetime` lacks, on which pyiceberg fails. A table's `write.metadata.metrics`
properties may want less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    StatsAggregator,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    match_metrics_mode,
)
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.types import (
    BinaryType,
    DateType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

TIMES: Final = (DateType, TimeType, TimestampType, TimestamptzType)
WITHOUT_BOUNDS: Final = (MetricModeTypes.NONE, MetricModeTypes.COUNTS)
COUNTS: Final = MetricsMode(MetricModeTypes.COUNTS)

Plan = dict[int, StatisticsCollector]
"""By field id, what is to be known of a column or a part of one."""


def plan(schema: Schema, properties: Mapping[str, str]) -> Plan:
    """Return what is to be known of a file, in place of pyiceberg's `compute_statistics_plan`.

    Args:
        schema: with the names that its columns have in the file.
        properties: the table's.
    """
    found: Plan = compute_statistics_plan(schema, dict(properties))
    for field_id in _parts(schema.as_struct()):
        found[field_id] = replace(found[field_id], mode=_mode(found[field_id], properties))
    return found


def statistics(
    parquet_metadata: pq.FileMetaData, stats_columns: Plan, parquet_column_mapping: dict[str, int]
) -> DataFileStatistics:
    """Return what is known of a file, in place of pyiceberg's `data_file_statistics_from_parquet_metadata`.

    Args:
        stats_columns: a plan.
        parquet_column_mapping: field ids by the path that a column has in the file.
    """
    times = {
        field_id: column
        for field_id, column in stats_columns.items()
        if isinstance(column.iceberg_type, TIMES) and column.mode.type not in WITHOUT_BOUNDS
    }
    counted = {field_id: replace(times[field_id], mode=COUNTS) for field_id in times}
    found: DataFileStatistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata, stats_columns | counted, parquet_column_mapping
    )
    for position in range(parquet_metadata.num_columns):
        column = times.get(parquet_column_mapping[parquet_metadata.schema.column(position).path])
        values = _numbers(parquet_metadata, position) if column is not None else []
        if column is not None and values:
            aggregate = found.column_aggregates[column.field_id] = StatsAggregator(
                column.iceberg_type, parquet_metadata.schema.column(position).physical_type
            )
            aggregate.update_min(min(values))
            aggregate.update_max(max(values))
    return found


def _parts(kind: StructType) -> Iterator[int]:
    """Yield the ids of values that are in no list or map."""
    for item in kind.fields:
        if isinstance(item.field_type, StructType):
            yield from _parts(item.field_type)
        elif isinstance(item.field_type, PrimitiveType):
            yield item.field_id


def _mode(column: StatisticsCollector, properties: Mapping[str, str]) -> MetricsMode:
    """Return how much the table's properties want to be known, as pyiceberg reads them for what is no part of a record."""
    default = properties.get(
        TableProperties.DEFAULT_WRITE_METRICS_MODE, TableProperties.DEFAULT_WRITE_METRICS_MODE_DEFAULT
    )
    wanted = properties.get(
        f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{column.column_name}", default
    )
    mode = match_metrics_mode(wanted)
    is_cut = isinstance(column.iceberg_type, StringType | BinaryType)
    return MetricsMode(MetricModeTypes.FULL) if mode.type == MetricModeTypes.TRUNCATE and not is_cut else mode


def _numbers(metadata: pq.FileMetaData, position: int) -> list[int]:
    """Return the lowest and highest numbers of a column's row groups; none where it has no value or they are not all known."""
    groups = [metadata.row_group(group).column(position) for group in range(metadata.num_row_groups)]
    if not all(group.is_stats_set for group in groups):
        return []
    known = [group.statistics for group in groups if group.statistics.has_min_max]
    return [number for item in known for number in (item.min_raw, item.max_raw)]
