"""AllocateProducerIds (key 67): a broker takes a block of producer ids."""

from headrace.broker.wire.fields import INT16, INT32, INT64, Field
from headrace.broker.wire.schema import Api

API = Api(
    key=67,
    name="AllocateProducerIds",
    versions=(0, 0),
    flexible=0,
    request=(
        Field("broker_id", INT32),
        Field("broker_epoch", INT64, default=-1),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("producer_id_start", INT64),
        Field("producer_id_len", INT32),
    ),
)
