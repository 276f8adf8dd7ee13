"""ListOffsets (key 2): finds offsets by timestamp."""

from headrace.broker.wire.fields import INT8, INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_PARTITION = Struct(
    Field("partition_index", INT32),
    Field("current_leader_epoch", INT32, "4+", default=-1, ignorable=True),
    Field("timestamp", INT64),
    Field("max_num_offsets", INT32, "0", default=1),
)

_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(_PARTITION)),
)

_PARTITION_RESPONSE = Struct(
    Field("partition_index", INT32),
    Field("error_code", INT16),
    Field("old_style_offsets", Array(INT64), "0"),
    Field("timestamp", INT64, "1+", default=-1),
    Field("offset", INT64, "1+", default=-1),
    Field("leader_epoch", INT32, "4+", default=-1),
)

_TOPIC_RESPONSE = Struct(
    Field("name", STRING),
    Field("partitions", Array(_PARTITION_RESPONSE)),
)

API = Api(
    key=2,
    name="ListOffsets",
    versions=(0, 9),
    flexible=6,
    request=(
        Field("replica_id", INT32),
        Field("isolation_level", INT8, "2+"),
        Field("topics", Array(_TOPIC)),
    ),
    response=(
        Field("throttle_time_ms", INT32, "2+", ignorable=True),
        Field("topics", Array(_TOPIC_RESPONSE)),
    ),
)
