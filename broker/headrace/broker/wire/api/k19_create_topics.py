"""CreateTopics (key 19): creates topics."""

from headrace.broker.wire.fields import BOOL, INT8, INT16, INT32, STRING, UUID, Array, Field, Struct
from headrace.broker.wire.schema import Api

_CREATABLE_REPLICA_ASSIGNMENT = Struct(
    Field("partition_index", INT32),
    Field("broker_ids", Array(INT32)),
)

_CREATABLE_TOPIC_CONFIG = Struct(
    Field("name", STRING),
    Field("value", STRING, nullable="0+"),
)

_CREATABLE_TOPIC = Struct(
    Field("name", STRING),
    Field("num_partitions", INT32),
    Field("replication_factor", INT16),
    Field("assignments", Array(_CREATABLE_REPLICA_ASSIGNMENT)),
    Field("configs", Array(_CREATABLE_TOPIC_CONFIG)),
)

_CREATABLE_TOPIC_CONFIGS = Struct(
    Field("name", STRING),
    Field("value", STRING, nullable="0+"),
    Field("read_only", BOOL),
    Field("config_source", INT8, default=-1, ignorable=True),
    Field("is_sensitive", BOOL),
)

_CREATABLE_TOPIC_RESULT = Struct(
    Field("name", STRING),
    Field("topic_id", UUID, "7+", ignorable=True),
    Field("error_code", INT16),
    Field("error_message", STRING, "1+", nullable="0+", ignorable=True),
    Field("topic_config_error_code", INT16, "5+", ignorable=True, tag=0),
    Field("num_partitions", INT32, "5+", default=-1, ignorable=True),
    Field("replication_factor", INT16, "5+", default=-1, ignorable=True),
    Field("configs", Array(_CREATABLE_TOPIC_CONFIGS), "5+", nullable="0+", ignorable=True),
)

API = Api(
    key=19,
    name="CreateTopics",
    versions=(0, 7),
    flexible=5,
    request=(
        Field("topics", Array(_CREATABLE_TOPIC)),
        Field("timeout_ms", INT32, default=60000),
        Field("validate_only", BOOL, "1+"),
    ),
    response=(
        Field("throttle_time_ms", INT32, "2+", ignorable=True),
        Field("topics", Array(_CREATABLE_TOPIC_RESULT)),
    ),
)
