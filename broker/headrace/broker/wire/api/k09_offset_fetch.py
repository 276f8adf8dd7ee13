"""OffsetFetch (key 9): reads a group's positions."""

from headrace.broker.wire.fields import BOOL, INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_REQUEST_TOPIC = Struct(
    Field("name", STRING),
    Field("partition_indexes", Array(INT32)),
)

_REQUEST_TOPICS = Struct(
    Field("name", STRING),
    Field("partition_indexes", Array(INT32)),
)

_REQUEST_GROUP = Struct(
    Field("group_id", STRING),
    Field("member_id", STRING, "9+", nullable="0+", default=None, ignorable=True),
    Field("member_epoch", INT32, "9+", default=-1, ignorable=True),
    Field("topics", Array(_REQUEST_TOPICS), nullable="0+"),
)

_PARTITION = Struct(
    Field("partition_index", INT32),
    Field("committed_offset", INT64),
    Field("committed_leader_epoch", INT32, "5-7", default=-1, ignorable=True),
    Field("metadata", STRING, nullable="0+"),
    Field("error_code", INT16),
)

_RESPONSE_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(_PARTITION)),
)

_PARTITIONS = Struct(
    Field("partition_index", INT32),
    Field("committed_offset", INT64),
    Field("committed_leader_epoch", INT32, default=-1, ignorable=True),
    Field("metadata", STRING, nullable="0+"),
    Field("error_code", INT16),
)

_RESPONSE_TOPICS = Struct(
    Field("name", STRING),
    Field("partitions", Array(_PARTITIONS)),
)

_RESPONSE_GROUP = Struct(
    Field("group_id", STRING),
    Field("topics", Array(_RESPONSE_TOPICS)),
    Field("error_code", INT16),
)

API = Api(
    key=9,
    name="OffsetFetch",
    versions=(0, 9),
    flexible=6,
    request=(
        Field("group_id", STRING, "0-7"),
        Field("topics", Array(_REQUEST_TOPIC), "0-7", nullable="2-7"),
        Field("groups", Array(_REQUEST_GROUP), "8+"),
        Field("require_stable", BOOL, "7+"),
    ),
    response=(
        Field("throttle_time_ms", INT32, "3+", ignorable=True),
        Field("topics", Array(_RESPONSE_TOPIC), "0-7"),
        Field("error_code", INT16, "2-7", ignorable=True),
        Field("groups", Array(_RESPONSE_GROUP), "8+"),
    ),
)
