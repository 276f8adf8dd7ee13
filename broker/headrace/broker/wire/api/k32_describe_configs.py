"""DescribeConfigs (key 32): shows configuration values and where they come from."""

from headrace.broker.wire.fields import BOOL, INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_RESOURCE = Struct(
    Field("resource_type", INT8),
    Field("resource_name", STRING),
    Field("configuration_keys", Array(STRING), nullable="0+"),
)

_SYNONYM = Struct(
    Field("name", STRING),
    Field("value", STRING, nullable="0+"),
    Field("source", INT8),
)

_RESOURCE_RESULT = Struct(
    Field("name", STRING),
    Field("value", STRING, nullable="0+"),
    Field("read_only", BOOL),
    Field("is_default", BOOL, "0"),
    Field("config_source", INT8, "1+", default=-1, ignorable=True),
    Field("is_sensitive", BOOL),
    Field("synonyms", Array(_SYNONYM), "1+", ignorable=True),
    Field("config_type", INT8, "3+", ignorable=True),
    Field("documentation", STRING, "3+", nullable="0+", ignorable=True),
)

_RESULT = Struct(
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
    Field("resource_type", INT8),
    Field("resource_name", STRING),
    Field("configs", Array(_RESOURCE_RESULT)),
)

API = Api(
    key=32,
    name="DescribeConfigs",
    versions=(0, 4),
    flexible=4,
    request=(
        Field("resources", Array(_RESOURCE)),
        Field("include_synonyms", BOOL, "1+"),
        Field("include_documentation", BOOL, "3+"),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("results", Array(_RESULT)),
    ),
)
