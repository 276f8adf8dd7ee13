"""OffsetCommit (key 8): stores a group's positions."""

from headrace.broker.wire.fields import INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_REQUEST_PARTITION = Struct(
    Field("partition_index", INT32),
    Field("committed_offset", INT64),
    Field("committed_leader_epoch", INT32, "6+", default=-1, ignorable=True),
    Field("commit_timestamp", INT64, "1", default=-1),
    Field("committed_metadata", STRING, nullable="0+"),
)

_REQUEST_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(_REQUEST_PARTITION)),
)

_RESPONSE_PARTITION = Struct(
    Field("partition_index", INT32),
    Field("error_code", INT16),
)

_RESPONSE_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(_RESPONSE_PARTITION)),
)

API = Api(
    key=8,
    name="OffsetCommit",
    versions=(0, 9),
    flexible=8,
    request=(
        Field("group_id", STRING),
        Field("generation_id_or_member_epoch", INT32, "1+", default=-1, ignorable=True),
        Field("member_id", STRING, "1+", ignorable=True),
        Field("group_instance_id", STRING, "7+", nullable="0+", default=None),
        Field("retention_time_ms", INT64, "2-4", default=-1, ignorable=True),
        Field("topics", Array(_REQUEST_TOPIC)),
    ),
    response=(
        Field("throttle_time_ms", INT32, "3+", ignorable=True),
        Field("topics", Array(_RESPONSE_TOPIC)),
    ),
)
