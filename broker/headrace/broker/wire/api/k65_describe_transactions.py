"""DescribeTransactions (key 65): shows the state of transactions."""

from headrace.broker.wire.fields import INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_TOPIC_DATA = Struct(
    Field("topic", STRING),
    Field("partitions", Array(INT32)),
)

_TRANSACTION_STATE = Struct(
    Field("error_code", INT16),
    Field("transactional_id", STRING),
    Field("transaction_state", STRING),
    Field("transaction_timeout_ms", INT32),
    Field("transaction_start_time_ms", INT64),
    Field("producer_id", INT64),
    Field("producer_epoch", INT16),
    Field("topics", Array(_TOPIC_DATA)),
)

API = Api(
    key=65,
    name="DescribeTransactions",
    versions=(0, 0),
    flexible=0,
    request=(Field("transactional_ids", Array(STRING)),),
    response=(
        Field("throttle_time_ms", INT32),
        Field("transaction_states", Array(_TRANSACTION_STATE)),
    ),
)
