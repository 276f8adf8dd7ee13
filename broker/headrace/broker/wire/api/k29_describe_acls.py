"""DescribeAcls (key 29): lists access rules."""

from headrace.broker.wire.fields import INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_ACL_DESCRIPTION = Struct(
    Field("principal", STRING),
    Field("host", STRING),
    Field("operation", INT8),
    Field("permission_type", INT8),
)

_RESOURCE = Struct(
    Field("resource_type", INT8),
    Field("resource_name", STRING),
    Field("pattern_type", INT8, "1+", default=3),
    Field("acls", Array(_ACL_DESCRIPTION)),
)

API = Api(
    key=29,
    name="DescribeAcls",
    versions=(0, 3),
    flexible=2,
    request=(
        Field("resource_type_filter", INT8),
        Field("resource_name_filter", STRING, nullable="0+"),
        Field("pattern_type_filter", INT8, "1+", default=3),
        Field("principal_filter", STRING, nullable="0+"),
        Field("host_filter", STRING, nullable="0+"),
        Field("operation", INT8),
        Field("permission_type", INT8),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("error_message", STRING, nullable="0+"),
        Field("resources", Array(_RESOURCE)),
    ),
)
