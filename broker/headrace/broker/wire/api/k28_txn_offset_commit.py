"""TxnOffsetCommit (key 28): stores a group's positions within a transaction."""

from headrace.broker.wire.fields import INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_REQUEST_PARTITION = Struct(
    Field("partition_index", INT32),
    Field("committed_offset", INT64),
    Field("committed_leader_epoch", INT32, "2+", default=-1, ignorable=True),
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
    key=28,
    name="TxnOffsetCommit",
    versions=(0, 4),
    flexible=3,
    request=(
        Field("transactional_id", STRING),
        Field("group_id", STRING),
        Field("producer_id", INT64),
        Field("producer_epoch", INT16),
        Field("generation_id", INT32, "3+", default=-1),
        Field("member_id", STRING, "3+"),
        Field("group_instance_id", STRING, "3+", nullable="0+", default=None),
        Field("topics", Array(_REQUEST_TOPIC)),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("topics", Array(_RESPONSE_TOPIC)),
    ),
)
