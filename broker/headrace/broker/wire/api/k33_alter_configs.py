"""AlterConfigs (key 33): replaces the configuration of resources."""

from headrace.broker.wire.fields import BOOL, INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_ALTERABLE_CONFIG = Struct(
    Field("name", STRING),
    Field("value", STRING, nullable="0+"),
)

_RESOURCE = Struct(
    Field("resource_type", INT8),
    Field("resource_name", STRING),
    Field("configs", Array(_ALTERABLE_CONFIG)),
)

_RESOURCE_RESPONSE = Struct(
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
    Field("resource_type", INT8),
    Field("resource_name", STRING),
)

API = Api(
    key=33,
    name="AlterConfigs",
    versions=(0, 2),
    flexible=2,
    request=(
        Field("resources", Array(_RESOURCE)),
        Field("validate_only", BOOL),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("responses", Array(_RESOURCE_RESPONSE)),
    ),
)
