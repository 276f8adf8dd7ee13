"""AlterReplicaLogDirs (key 34): moves replicas between log directories."""

from headrace.broker.wire.fields import INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_ALTER_REPLICA_LOG_DIR_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(INT32)),
)

_ALTER_REPLICA_LOG_DIR = Struct(
    Field("path", STRING),
    Field("topics", Array(_ALTER_REPLICA_LOG_DIR_TOPIC)),
)

_ALTER_REPLICA_LOG_DIR_PARTITION_RESULT = Struct(
    Field("partition_index", INT32),
    Field("error_code", INT16),
)

_ALTER_REPLICA_LOG_DIR_TOPIC_RESULT = Struct(
    Field("topic_name", STRING),
    Field("partitions", Array(_ALTER_REPLICA_LOG_DIR_PARTITION_RESULT)),
)

API = Api(
    key=34,
    name="AlterReplicaLogDirs",
    versions=(0, 2),
    flexible=2,
    request=(Field("dirs", Array(_ALTER_REPLICA_LOG_DIR)),),
    response=(
        Field("throttle_time_ms", INT32),
        Field("results", Array(_ALTER_REPLICA_LOG_DIR_TOPIC_RESULT)),
    ),
)
