"""StopReplica (key 5): the controller tells a broker to stop or delete replicas."""

from headrace.broker.wire.fields import BOOL, INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_PARTITION_V0 = Struct(
    Field("topic_name", STRING),
    Field("partition_index", INT32),
)

_TOPIC_V1 = Struct(
    Field("name", STRING),
    Field("partition_indexes", Array(INT32)),
)

_PARTITION_STATE = Struct(
    Field("partition_index", INT32),
    Field("leader_epoch", INT32, default=-1),
    Field("delete_partition", BOOL),
)

_TOPIC_STATE = Struct(
    Field("topic_name", STRING),
    Field("partition_states", Array(_PARTITION_STATE)),
)

_PARTITION_ERROR = Struct(
    Field("topic_name", STRING),
    Field("partition_index", INT32),
    Field("error_code", INT16),
)

API = Api(
    key=5,
    name="StopReplica",
    versions=(0, 4),
    flexible=2,
    request=(
        Field("controller_id", INT32),
        Field("is_kraft_controller", BOOL, "4+"),
        Field("controller_epoch", INT32),
        Field("broker_epoch", INT64, "1+", default=-1, ignorable=True),
        Field("delete_partitions", BOOL, "0-2"),
        Field("ungrouped_partitions", Array(_PARTITION_V0), "0"),
        Field("topics", Array(_TOPIC_V1), "1-2"),
        Field("topic_states", Array(_TOPIC_STATE), "3+"),
    ),
    response=(
        Field("error_code", INT16),
        Field("partition_errors", Array(_PARTITION_ERROR)),
    ),
)
