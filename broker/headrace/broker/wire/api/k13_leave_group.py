"""LeaveGroup (key 13): takes members out of a group."""

from headrace.broker.wire.fields import INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_MEMBER_IDENTITY = Struct(
    Field("member_id", STRING),
    Field("group_instance_id", STRING, nullable="0+", default=None),
    Field("reason", STRING, "5+", nullable="0+", default=None, ignorable=True),
)

_MEMBER_RESPONSE = Struct(
    Field("member_id", STRING),
    Field("group_instance_id", STRING, nullable="0+"),
    Field("error_code", INT16),
)

API = Api(
    key=13,
    name="LeaveGroup",
    versions=(0, 5),
    flexible=4,
    request=(
        Field("group_id", STRING),
        Field("member_id", STRING, "0-2"),
        Field("members", Array(_MEMBER_IDENTITY), "3+"),
    ),
    response=(
        Field("throttle_time_ms", INT32, "1+", ignorable=True),
        Field("error_code", INT16),
        Field("members", Array(_MEMBER_RESPONSE), "3+"),
    ),
)
