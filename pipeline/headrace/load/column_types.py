"""Which types the columns of an Iceberg table have, and which values a column can hold. Pure.

Source: https://iceberg.apache.org/spec/#schema-evolution
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headrace.load.names import parts

TABLE_TYPES: Final = {
    pa.time32("ms"): pa.time64("us"),
    pa.timestamp("ms", "UTC"): pa.timestamp("us", "UTC"),
    pa.timestamp("ms"): pa.timestamp("us"),
}
"""What Iceberg (format 2) stores instead: it knows microseconds only."""


def table_type(natural: pa.DataType) -> pa.DataType:
    """Return the type that an Iceberg table stores for a value, nested types included, all parts optional."""
    if pa.types.is_struct(natural):
        return pa.struct([pa.field(part.name, table_type(part.type)) for part in parts(natural)])
    if pa.types.is_list(natural):
        return pa.list_(table_type(natural.value_type))
    if pa.types.is_map(natural):
        return pa.map_(natural.key_type, table_type(natural.item_type))
    return TABLE_TYPES.get(natural, natural)


def is_wider(wanted: pa.DataType, present: pa.DataType) -> bool:
    """True when a table column has to be promoted for the wanted type (Iceberg: int to long, float to double, more digits)."""
    if pa.types.is_decimal(wanted) and pa.types.is_decimal(present):
        return bool(wanted.scale == present.scale and wanted.precision > present.precision)
    return (present, wanted) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def is_storable(wanted: pa.DataType, present: pa.DataType) -> bool:
    """True when a value of the wanted type fits a column of the present type as it is (Avro's promotions, fewer digits)."""
    if pa.types.is_decimal(wanted) and pa.types.is_decimal(present):
        return bool(wanted.scale == present.scale and wanted.precision <= present.precision)
    wider: dict[pa.DataType, tuple[pa.DataType, ...]] = {
        pa.int32(): (pa.int64(), pa.float64()),
        pa.float32(): (pa.float64(),),
        pa.string(): (pa.binary(),),
    }
    return wanted == present or present in wider.get(wanted, ())
