"""ListPartitionReassignments (key 46): lists moves of replicas under way."""

from headrace.broker.wire.fields import INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_TOPICS = Struct(
    Field("name", STRING),
    Field("partition_indexes", Array(INT32)),
)

_ONGOING_PARTITION_REASSIGNMENT = Struct(
    Field("partition_index", INT32),
    Field("replicas", Array(INT32)),
    Field("adding_replicas", Array(INT32)),
    Field("removing_replicas", Array(INT32)),
)

_ONGOING_TOPIC_REASSIGNMENT = Struct(
    Field("name", STRING),
    Field("partitions", Array(_ONGOING_PARTITION_REASSIGNMENT)),
)

API = Api(
    key=46,
    name="ListPartitionReassignments",
    versions=(0, 0),
    flexible=0,
    request=(
        Field("timeout_ms", INT32, default=60000),
        Field("topics", Array(_TOPICS), nullable="0+", default=None),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("error_message", STRING, nullable="0+"),
        Field("topics", Array(_ONGOING_TOPIC_REASSIGNMENT)),
    ),
)
