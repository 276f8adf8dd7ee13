"""LeaderAndIsr (key 4): the controller tells a broker which partitions it leads or follows."""

from headrace.broker.wire.fields import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, Array, Field, Struct
from headrace.broker.wire.schema import Api

_PARTITION_STATE = Struct(
    Field("topic_name", STRING, "0-1", ignorable=True),
    Field("partition_index", INT32),
    Field("controller_epoch", INT32),
    Field("leader", INT32),
    Field("leader_epoch", INT32),
    Field("isr", Array(INT32)),
    Field("partition_epoch", INT32),
    Field("replicas", Array(INT32)),
    Field("adding_replicas", Array(INT32), "3+", ignorable=True),
    Field("removing_replicas", Array(INT32), "3+", ignorable=True),
    Field("is_new", BOOL, "1+", ignorable=True),
    Field("leader_recovery_state", INT8, "6+"),
)

_TOPIC_STATE = Struct(
    Field("topic_name", STRING),
    Field("topic_id", UUID, "5+", ignorable=True),
    Field("partition_states", Array(_PARTITION_STATE)),
)

_LIVE_LEADER = Struct(
    Field("broker_id", INT32),
    Field("host_name", STRING),
    Field("port", INT32),
)

_PARTITION_ERROR = Struct(
    Field("topic_name", STRING, "0-4", ignorable=True),
    Field("partition_index", INT32),
    Field("error_code", INT16),
)

_TOPIC_ERROR = Struct(
    Field("topic_id", UUID),
    Field("partition_errors", Array(_PARTITION_ERROR)),
)

API = Api(
    key=4,
    name="LeaderAndIsr",
    versions=(0, 7),
    flexible=4,
    request=(
        Field("controller_id", INT32),
        Field("is_kraft_controller", BOOL, "7+"),
        Field("controller_epoch", INT32),
        Field("broker_epoch", INT64, "2+", default=-1, ignorable=True),
        Field("type", INT8, "5+"),
        Field("ungrouped_partition_states", Array(_PARTITION_STATE), "0-1"),
        Field("topic_states", Array(_TOPIC_STATE), "2+"),
        Field("live_leaders", Array(_LIVE_LEADER)),
    ),
    response=(
        Field("error_code", INT16),
        Field("partition_errors", Array(_PARTITION_ERROR), "0-4"),
        Field("topics", Array(_TOPIC_ERROR), "5+"),
    ),
)
