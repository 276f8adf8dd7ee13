"""ListTransactions (key 66): lists the transactions of a coordinator."""

from headrace.broker.wire.fields import INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_TRANSACTION_STATE = Struct(
    Field("transactional_id", STRING),
    Field("producer_id", INT64),
    Field("transaction_state", STRING),
)

API = Api(
    key=66,
    name="ListTransactions",
    versions=(0, 1),
    flexible=0,
    request=(
        Field("state_filters", Array(STRING)),
        Field("producer_id_filters", Array(INT64)),
        Field("duration_filter", INT64, "1+", default=-1),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("unknown_state_filters", Array(STRING)),
        Field("transaction_states", Array(_TRANSACTION_STATE)),
    ),
)
