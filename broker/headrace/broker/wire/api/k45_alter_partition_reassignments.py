"""AlterPartitionReassignments (key 45): starts or cancels moves of replicas."""

from headrace.broker.wire.fields import INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_REASSIGNABLE_PARTITION = Struct(
    Field("partition_index", INT32),
    Field("replicas", Array(INT32), nullable="0+", default=None),
)

_REASSIGNABLE_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(_REASSIGNABLE_PARTITION)),
)

_REASSIGNABLE_PARTITION_RESPONSE = Struct(
    Field("partition_index", INT32),
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
)

_REASSIGNABLE_TOPIC_RESPONSE = Struct(
    Field("name", STRING),
    Field("partitions", Array(_REASSIGNABLE_PARTITION_RESPONSE)),
)

API = Api(
    key=45,
    name="AlterPartitionReassignments",
    versions=(0, 0),
    flexible=0,
    request=(
        Field("timeout_ms", INT32, default=60000),
        Field("topics", Array(_REASSIGNABLE_TOPIC)),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("error_message", STRING, nullable="0+"),
        Field("responses", Array(_REASSIGNABLE_TOPIC_RESPONSE)),
    ),
)
