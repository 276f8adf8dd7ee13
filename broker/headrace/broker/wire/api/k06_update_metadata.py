"""UpdateMetadata (key 6): the controller tells every broker the state of the cluster."""

from headrace.broker.wire.fields import BOOL, INT8, INT16, INT32, INT64, STRING, UUID, Array, Field, Struct
from headrace.broker.wire.schema import Api

_PARTITION_STATE = Struct(
    Field("topic_name", STRING, "0-4", ignorable=True),
    Field("partition_index", INT32),
    Field("controller_epoch", INT32),
    Field("leader", INT32),
    Field("leader_epoch", INT32),
    Field("isr", Array(INT32)),
    Field("zk_version", INT32),
    Field("replicas", Array(INT32)),
    Field("offline_replicas", Array(INT32), "4+", ignorable=True),
)

_TOPIC_STATE = Struct(
    Field("topic_name", STRING),
    Field("topic_id", UUID, "7+", ignorable=True),
    Field("partition_states", Array(_PARTITION_STATE)),
)

_ENDPOINT = Struct(
    Field("port", INT32),
    Field("host", STRING),
    Field("listener", STRING, "3+", ignorable=True),
    Field("security_protocol", INT16),
)

_BROKER = Struct(
    Field("id", INT32),
    Field("v0_host", STRING, "0", ignorable=True),
    Field("v0_port", INT32, "0", ignorable=True),
    Field("endpoints", Array(_ENDPOINT), "1+", ignorable=True),
    Field("rack", STRING, "2+", nullable="0+", ignorable=True),
)

API = Api(
    key=6,
    name="UpdateMetadata",
    versions=(0, 8),
    flexible=6,
    request=(
        Field("controller_id", INT32),
        Field("is_kraft_controller", BOOL, "8+"),
        Field("type", INT8, "8+", tag=0),
        Field("controller_epoch", INT32),
        Field("broker_epoch", INT64, "5+", default=-1, ignorable=True),
        Field("ungrouped_partition_states", Array(_PARTITION_STATE), "0-4"),
        Field("topic_states", Array(_TOPIC_STATE), "5+"),
        Field("live_brokers", Array(_BROKER)),
    ),
    response=(Field("error_code", INT16),),
)
