"""CreateAcls (key 30): creates access rules."""

from headrace.broker.wire.fields import INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_ACL_CREATION = Struct(
    Field("resource_type", INT8),
    Field("resource_name", STRING),
    Field("resource_pattern_type", INT8, "1+", default=3),
    Field("principal", STRING),
    Field("host", STRING),
    Field("operation", INT8),
    Field("permission_type", INT8),
)

_ACL_CREATION_RESULT = Struct(
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
)

API = Api(
    key=30,
    name="CreateAcls",
    versions=(0, 3),
    flexible=2,
    request=(Field("creations", Array(_ACL_CREATION)),),
    response=(
        Field("throttle_time_ms", INT32),
        Field("results", Array(_ACL_CREATION_RESULT)),
    ),
)
