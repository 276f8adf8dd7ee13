"""JoinGroup (key 11): makes a consumer a member of its group."""

from headrace.broker.wire.fields import BOOL, BYTES, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_PROTOCOL = Struct(
    Field("name", STRING),
    Field("metadata", BYTES),
)

_MEMBER = Struct(
    Field("member_id", STRING),
    Field("group_instance_id", STRING, "5+", nullable="0+", default=None, ignorable=True),
    Field("metadata", BYTES),
)

API = Api(
    key=11,
    name="JoinGroup",
    versions=(0, 9),
    flexible=6,
    request=(
        Field("group_id", STRING),
        Field("session_timeout_ms", INT32),
        Field("rebalance_timeout_ms", INT32, "1+", default=-1, ignorable=True),
        Field("member_id", STRING),
        Field("group_instance_id", STRING, "5+", nullable="0+", default=None),
        Field("protocol_type", STRING),
        Field("protocols", Array(_PROTOCOL)),
        Field("reason", STRING, "8+", nullable="0+", default=None, ignorable=True),
    ),
    response=(
        Field("throttle_time_ms", INT32, "2+", ignorable=True),
        Field("error_code", INT16),
        Field("generation_id", INT32, default=-1),
        Field("protocol_type", STRING, "7+", nullable="0+", default=None, ignorable=True),
        Field("protocol_name", STRING, nullable="7+"),
        Field("leader", STRING),
        Field("skip_assignment", BOOL, "9+"),
        Field("member_id", STRING),
        Field("members", Array(_MEMBER)),
    ),
)
