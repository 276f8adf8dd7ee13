"""Heartbeat (key 12): keeps a member in its group."""

from headrace.broker.wire.fields import INT16, INT32, STRING, Field
from headrace.broker.wire.schema import Api

API = Api(
    key=12,
    name="Heartbeat",
    versions=(0, 4),
    flexible=4,
    request=(
        Field("group_id", STRING),
        Field("generation_id", INT32),
        Field("member_id", STRING),
        Field("group_instance_id", STRING, "3+", nullable="0+", default=None),
    ),
    response=(
        Field("throttle_time_ms", INT32, "1+", ignorable=True),
        Field("error_code", INT16),
    ),
)
