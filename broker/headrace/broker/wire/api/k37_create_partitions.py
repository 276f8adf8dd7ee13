"""CreatePartitions (key 37): adds partitions to topics."""

from headrace.broker.wire.fields import BOOL, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_ASSIGNMENT = Struct(
    Field("broker_ids", Array(INT32)),
)

_TOPIC = Struct(
    Field("name", STRING),
    Field("count", INT32),
    Field("assignments", Array(_ASSIGNMENT), nullable="0+"),
)

_TOPIC_RESULT = Struct(
    Field("name", STRING),
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+", default=None),
)

API = Api(
    key=37,
    name="CreatePartitions",
    versions=(0, 3),
    flexible=2,
    request=(
        Field("topics", Array(_TOPIC)),
        Field("timeout_ms", INT32),
        Field("validate_only", BOOL),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("results", Array(_TOPIC_RESULT)),
    ),
)
