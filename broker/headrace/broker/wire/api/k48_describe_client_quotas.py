"""DescribeClientQuotas (key 48): shows client quotas."""

from headrace.broker.wire.fields import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_COMPONENT_DATA = Struct(
    Field("entity_type", STRING),
    Field("match_type", INT8),
    Field("match", STRING, nullable="0+"),
)

_ENTITY_DATA = Struct(
    Field("entity_type", STRING),
    Field("entity_name", STRING, nullable="0+"),
)

_VALUE_DATA = Struct(
    Field("key", STRING),
    Field("value", FLOAT64),
)

_ENTRY_DATA = Struct(
    Field("entity", Array(_ENTITY_DATA)),
    Field("values", Array(_VALUE_DATA)),
)

API = Api(
    key=48,
    name="DescribeClientQuotas",
    versions=(0, 1),
    flexible=1,
    request=(
        Field("components", Array(_COMPONENT_DATA)),
        Field("strict", BOOL),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("error_message", STRING, nullable="0+"),
        Field("entries", Array(_ENTRY_DATA), nullable="0+"),
    ),
)
