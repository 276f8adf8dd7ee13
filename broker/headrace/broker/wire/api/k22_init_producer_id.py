"""InitProducerId (key 22): gives a producer its id and epoch."""

from headrace.broker.wire.fields import INT16, INT32, INT64, STRING, Field
from headrace.broker.wire.schema import Api

API = Api(
    key=22,
    name="InitProducerId",
    versions=(0, 5),
    flexible=2,
    request=(
        Field("transactional_id", STRING, nullable="0+"),
        Field("transaction_timeout_ms", INT32),
        Field("producer_id", INT64, "3+", default=-1),
        Field("producer_epoch", INT16, "3+", default=-1),
    ),
    response=(
        Field("throttle_time_ms", INT32, ignorable=True),
        Field("error_code", INT16),
        Field("producer_id", INT64, default=-1),
        Field("producer_epoch", INT16),
    ),
)
