"""AlterClientQuotas (key 49): changes client quotas."""

from headrace.broker.wire.fields import BOOL, FLOAT64, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_REQUEST_ENTITY_DATA = Struct(
    Field("entity_type", STRING),
    Field("entity_name", STRING, nullable="0+"),
)

_OP_DATA = Struct(
    Field("key", STRING),
    Field("value", FLOAT64),
    Field("remove", BOOL),
)

_REQUEST_ENTRY_DATA = Struct(
    Field("entity", Array(_REQUEST_ENTITY_DATA)),
    Field("ops", Array(_OP_DATA)),
)

_RESPONSE_ENTITY_DATA = Struct(
    Field("entity_type", STRING),
    Field("entity_name", STRING, nullable="0+"),
)

_RESPONSE_ENTRY_DATA = Struct(
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
    Field("entity", Array(_RESPONSE_ENTITY_DATA)),
)

API = Api(
    key=49,
    name="AlterClientQuotas",
    versions=(0, 1),
    flexible=1,
    request=(
        Field("entries", Array(_REQUEST_ENTRY_DATA)),
        Field("validate_only", BOOL),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("entries", Array(_RESPONSE_ENTRY_DATA)),
    ),
)
