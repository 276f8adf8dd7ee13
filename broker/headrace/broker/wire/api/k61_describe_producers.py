"""DescribeProducers (key 61): shows the producers a partition remembers."""

from headrace.broker.wire.fields import INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_TOPIC_REQUEST = Struct(
    Field("name", STRING),
    Field("partition_indexes", Array(INT32)),
)

_PRODUCER_STATE = Struct(
    Field("producer_id", INT64),
    Field("producer_epoch", INT32),
    Field("last_sequence", INT32, default=-1),
    Field("last_timestamp", INT64, default=-1),
    Field("coordinator_epoch", INT32),
    Field("current_txn_start_offset", INT64, default=-1),
)

_PARTITION_RESPONSE = Struct(
    Field("partition_index", INT32),
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+", default=None),
    Field("active_producers", Array(_PRODUCER_STATE)),
)

_TOPIC_RESPONSE = Struct(
    Field("name", STRING),
    Field("partitions", Array(_PARTITION_RESPONSE)),
)

API = Api(
    key=61,
    name="DescribeProducers",
    versions=(0, 0),
    flexible=0,
    request=(Field("topics", Array(_TOPIC_REQUEST)),),
    response=(
        Field("throttle_time_ms", INT32),
        Field("topics", Array(_TOPIC_RESPONSE)),
    ),
)
