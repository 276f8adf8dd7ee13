"""AddPartitionsToTxn (key 24): adds partitions to a transaction."""

from headrace.broker.wire.fields import BOOL, INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(INT32)),
)

_TRANSACTION = Struct(
    Field("transactional_id", STRING),
    Field("producer_id", INT64),
    Field("producer_epoch", INT16),
    Field("verify_only", BOOL),
    Field("topics", Array(_TOPIC)),
)

_PARTITION_RESULT = Struct(
    Field("partition_index", INT32),
    Field("partition_error_code", INT16),
)

_TOPIC_RESULT = Struct(
    Field("name", STRING),
    Field("results_by_partition", Array(_PARTITION_RESULT)),
)

_RESULT = Struct(
    Field("transactional_id", STRING),
    Field("topic_results", Array(_TOPIC_RESULT)),
)

API = Api(
    key=24,
    name="AddPartitionsToTxn",
    versions=(0, 5),
    flexible=3,
    request=(
        Field("transactions", Array(_TRANSACTION), "4+"),
        Field("v3_and_below_transactional_id", STRING, "0-3"),
        Field("v3_and_below_producer_id", INT64, "0-3"),
        Field("v3_and_below_producer_epoch", INT16, "0-3"),
        Field("v3_and_below_topics", Array(_TOPIC), "0-3"),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16, "4+", ignorable=True),
        Field("results_by_transaction", Array(_RESULT), "4+"),
        Field("results_by_topic_v3_and_below", Array(_TOPIC_RESULT), "0-3"),
    ),
)
