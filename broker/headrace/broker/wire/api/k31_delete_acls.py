"""DeleteAcls (key 31): deletes access rules."""

from headrace.broker.wire.fields import INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_FILTER = Struct(
    Field("resource_type_filter", INT8),
    Field("resource_name_filter", STRING, nullable="0+"),
    Field("pattern_type_filter", INT8, "1+", default=3),
    Field("principal_filter", STRING, nullable="0+"),
    Field("host_filter", STRING, nullable="0+"),
    Field("operation", INT8),
    Field("permission_type", INT8),
)

_MATCHING_ACL = Struct(
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
    Field("resource_type", INT8),
    Field("resource_name", STRING),
    Field("pattern_type", INT8, "1+", default=3),
    Field("principal", STRING),
    Field("host", STRING),
    Field("operation", INT8),
    Field("permission_type", INT8),
)

_FILTER_RESULT = Struct(
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
    Field("matching_acls", Array(_MATCHING_ACL)),
)

API = Api(
    key=31,
    name="DeleteAcls",
    versions=(0, 3),
    flexible=2,
    request=(Field("filters", Array(_FILTER)),),
    response=(
        Field("throttle_time_ms", INT32),
        Field("filter_results", Array(_FILTER_RESULT)),
    ),
)
