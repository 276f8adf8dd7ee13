"""IncrementalAlterConfigs (key 44): changes single configuration values."""

from headrace.broker.wire.fields import BOOL, INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_ALTERABLE_CONFIG = Struct(
    Field("name", STRING),
    Field("config_operation", INT8),
    Field("value", STRING, nullable="0+"),
)

_ALTER_CONFIGS_RESOURCE = Struct(
    Field("resource_type", INT8),
    Field("resource_name", STRING),
    Field("configs", Array(_ALTERABLE_CONFIG)),
)

_ALTER_CONFIGS_RESOURCE_RESPONSE = Struct(
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
    Field("resource_type", INT8),
    Field("resource_name", STRING),
)

API = Api(
    key=44,
    name="IncrementalAlterConfigs",
    versions=(0, 1),
    flexible=1,
    request=(
        Field("resources", Array(_ALTER_CONFIGS_RESOURCE)),
        Field("validate_only", BOOL),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("responses", Array(_ALTER_CONFIGS_RESOURCE_RESPONSE)),
    ),
)
