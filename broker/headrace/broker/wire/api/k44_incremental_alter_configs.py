"""IncrementalAlterConfigs (key 44): changes single configuration values; its response is that of AlterConfigs."""

from headrace.broker.wire.api import k33_alter_configs
from headrace.broker.wire.fields import BOOL, INT8, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_ALTERABLE_CONFIG = Struct(
    Field("name", STRING),
    Field("config_operation", INT8),
    Field("value", STRING, nullable="0+"),
)

_RESOURCE = Struct(
    Field("resource_type", INT8),
    Field("resource_name", STRING),
    Field("configs", Array(_ALTERABLE_CONFIG)),
)

API = Api(
    key=44,
    name="IncrementalAlterConfigs",
    versions=(0, 1),
    flexible=1,
    request=(
        Field("resources", Array(_RESOURCE)),
        Field("validate_only", BOOL),
    ),
    response=k33_alter_configs.API.response,
)
