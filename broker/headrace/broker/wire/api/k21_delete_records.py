"""DeleteRecords (key 21): moves the log start offset of partitions forward."""

from headrace.broker.wire.fields import INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_PARTITION = Struct(
    Field("partition_index", INT32),
    Field("offset", INT64),
)

_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(_PARTITION)),
)

_PARTITION_RESULT = Struct(
    Field("partition_index", INT32),
    Field("low_watermark", INT64),
    Field("error_code", INT16),
)

_TOPIC_RESULT = Struct(
    Field("name", STRING),
    Field("partitions", Array(_PARTITION_RESULT)),
)

API = Api(
    key=21,
    name="DeleteRecords",
    versions=(0, 2),
    flexible=2,
    request=(
        Field("topics", Array(_TOPIC)),
        Field("timeout_ms", INT32),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("topics", Array(_TOPIC_RESULT)),
    ),
)
