"""SyncGroup (key 14): hands the leader's assignment to every member."""

from headrace.broker.wire.fields import BYTES, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_ASSIGNMENT = Struct(
    Field("member_id", STRING),
    Field("assignment", BYTES),
)

API = Api(
    key=14,
    name="SyncGroup",
    versions=(0, 5),
    flexible=4,
    request=(
        Field("group_id", STRING),
        Field("generation_id", INT32),
        Field("member_id", STRING),
        Field("group_instance_id", STRING, "3+", nullable="0+", default=None),
        Field("protocol_type", STRING, "5+", nullable="0+", default=None, ignorable=True),
        Field("protocol_name", STRING, "5+", nullable="0+", default=None, ignorable=True),
        Field("assignments", Array(_ASSIGNMENT)),
    ),
    response=(
        Field("throttle_time_ms", INT32, "1+", ignorable=True),
        Field("error_code", INT16),
        Field("protocol_type", STRING, "5+", nullable="0+", default=None, ignorable=True),
        Field("protocol_name", STRING, "5+", nullable="0+", default=None, ignorable=True),
        Field("assignment", BYTES),
    ),
)
