"""DescribeLogDirs (key 35): shows log directories and replica sizes."""

from headrace.broker.wire.fields import BOOL, INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_DESCRIBABLE_LOG_DIR_TOPIC = Struct(
    Field("topic", STRING),
    Field("partitions", Array(INT32)),
)

_PARTITION = Struct(
    Field("partition_index", INT32),
    Field("partition_size", INT64),
    Field("offset_lag", INT64),
    Field("is_future_key", BOOL),
)

_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(_PARTITION)),
)

_RESULT = Struct(
    Field("error_code", INT16),
    Field("log_dir", STRING),
    Field("topics", Array(_TOPIC)),
    Field("total_bytes", INT64, "4+", default=-1, ignorable=True),
    Field("usable_bytes", INT64, "4+", default=-1, ignorable=True),
)

API = Api(
    key=35,
    name="DescribeLogDirs",
    versions=(0, 4),
    flexible=2,
    request=(Field("topics", Array(_DESCRIBABLE_LOG_DIR_TOPIC), nullable="0+"),),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16, "3+", ignorable=True),
        Field("results", Array(_RESULT)),
    ),
)
