"""ElectLeaders (key 43): starts a preferred or unclean leader election."""

from headrace.broker.wire.fields import INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_TOPIC_PARTITIONS = Struct(
    Field("topic", STRING),
    Field("partitions", Array(INT32)),
)

_PARTITION_RESULT = Struct(
    Field("partition_id", INT32),
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
)

_REPLICA_ELECTION_RESULT = Struct(
    Field("topic", STRING),
    Field("partition_result", Array(_PARTITION_RESULT)),
)

API = Api(
    key=43,
    name="ElectLeaders",
    versions=(0, 2),
    flexible=2,
    request=(
        Field("election_type", INT8, "1+"),
        Field("topic_partitions", Array(_TOPIC_PARTITIONS), nullable="0+"),
        Field("timeout_ms", INT32, default=60000),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16, "1+"),
        Field("replica_election_results", Array(_REPLICA_ELECTION_RESULT)),
    ),
)
