"""OffsetForLeaderEpoch (key 23): tells where a leader epoch ends in the log."""

from headrace.broker.wire.fields import INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_OFFSET_FOR_LEADER_PARTITION = Struct(
    Field("partition", INT32),
    Field("current_leader_epoch", INT32, "2+", default=-1, ignorable=True),
    Field("leader_epoch", INT32),
)

_OFFSET_FOR_LEADER_TOPIC = Struct(
    Field("topic", STRING),
    Field("partitions", Array(_OFFSET_FOR_LEADER_PARTITION)),
)

_EPOCH_END_OFFSET = Struct(
    Field("error_code", INT16),
    Field("partition", INT32),
    Field("leader_epoch", INT32, "1+", default=-1, ignorable=True),
    Field("end_offset", INT64, default=-1),
)

_OFFSET_FOR_LEADER_TOPIC_RESULT = Struct(
    Field("topic", STRING),
    Field("partitions", Array(_EPOCH_END_OFFSET)),
)

API = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    versions=(0, 4),
    flexible=4,
    request=(
        Field("replica_id", INT32, "3+", default=-2, ignorable=True),
        Field("topics", Array(_OFFSET_FOR_LEADER_TOPIC)),
    ),
    response=(
        Field("throttle_time_ms", INT32, "2+", ignorable=True),
        Field("topics", Array(_OFFSET_FOR_LEADER_TOPIC_RESULT)),
    ),
)
