"""EndTxn (key 26): commits or aborts a transaction."""

from headrace.broker.wire.fields import BOOL, INT16, INT32, INT64, STRING, Field
from headrace.broker.wire.schema import Api

API = Api(
    key=26,
    name="EndTxn",
    versions=(0, 4),
    flexible=3,
    request=(
        Field("transactional_id", STRING),
        Field("producer_id", INT64),
        Field("producer_epoch", INT16),
        Field("committed", BOOL),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
    ),
)
