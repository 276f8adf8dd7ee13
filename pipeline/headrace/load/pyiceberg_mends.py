"""Errors of pyiceberg 0.12, mended where it runs inside headrace; importing this module does it.

A list or map of records that is null is read as an empty one, and so written when a commit rewrites its file. A delete by
a part of a record fails on files that have bounds for it, as those of loads and of Spark have. A file
that a commit rewrites gets fewer bounds than it had, or the commit fails (see `column_bounds`). Owns nothing else; goes once
pyiceberg has mended them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions.visitors import _StrictMetricsEvaluationVisitor
from pyiceberg.io import pyarrow
from pyiceberg.io.pyarrow import ArrowProjectionVisitor
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField

from headrace.load import column_bounds

_list, _map = ArrowProjectionVisitor.list, ArrowProjectionVisitor.map


def _list_with_nulls(
    visitor: ArrowProjectionVisitor, kind: ListType, there: pa.Array | None, values: pa.Array | None
) -> pa.Array | None:
    return _with_nulls_of(there, _list(visitor, kind, there, values))


def _map_with_nulls(
    visitor: ArrowProjectionVisitor,
    kind: MapType,
    there: pa.Array | None,
    keys: pa.Array | None,
    values: pa.Array | None,
) -> pa.Array | None:
    return _with_nulls_of(there, _map(visitor, kind, there, keys, values))


def _with_nulls_of(there: pa.Array | None, found: pa.Array | None) -> pa.Array | None:
    if there is None or found is None or there.null_count == found.null_count:
        return found
    places = pa.array(np.arange(len(found)))
    return found.take(pc.if_else(there.is_valid(), places, None))


def _nested_field(visitor: Any, field_id: int) -> NestedField:
    return Schema(*visitor.struct.fields).find_field(field_id)


for owner, name, mended in (
    (ArrowProjectionVisitor, "list", _list_with_nulls),
    (ArrowProjectionVisitor, "map", _map_with_nulls),
    (_StrictMetricsEvaluationVisitor, "_get_field", _nested_field),
    (pyarrow, "compute_statistics_plan", column_bounds.plan),
    (pyarrow, "data_file_statistics_from_parquet_metadata", column_bounds.statistics),
):
    setattr(owner, name, mended)
