"""Metadata (key 3): names brokers, topics and partition leaders."""

from headrace.broker.wire.fields import BOOL, INT16, INT32, STRING, UUID, Array, Field, Struct
from headrace.broker.wire.schema import Api

_REQUEST_TOPIC = Struct(
    Field("topic_id", UUID, "10+", ignorable=True),
    Field("name", STRING, nullable="10+"),
)

_BROKER = Struct(
    Field("node_id", INT32),
    Field("host", STRING),
    Field("port", INT32),
    Field("rack", STRING, "1+", nullable="0+", default=None, ignorable=True),
)

_PARTITION = Struct(
    Field("error_code", INT16),
    Field("partition_index", INT32),
    Field("leader_id", INT32),
    Field("leader_epoch", INT32, "7+", default=-1, ignorable=True),
    Field("replica_nodes", Array(INT32)),
    Field("isr_nodes", Array(INT32)),
    Field("offline_replicas", Array(INT32), "5+", ignorable=True),
)

_RESPONSE_TOPIC = Struct(
    Field("error_code", INT16),
    Field("name", STRING, nullable="12+"),
    Field("topic_id", UUID, "10+", ignorable=True),
    Field("is_internal", BOOL, "1+", ignorable=True),
    Field("partitions", Array(_PARTITION)),
    Field("topic_authorized_operations", INT32, "8+", default=-2147483648),
)

API = Api(
    key=3,
    name="Metadata",
    versions=(0, 12),
    flexible=9,
    request=(
        Field("topics", Array(_REQUEST_TOPIC), nullable="1+"),
        Field("allow_auto_topic_creation", BOOL, "4+", default=True),
        Field("include_cluster_authorized_operations", BOOL, "8-10"),
        Field("include_topic_authorized_operations", BOOL, "8+"),
    ),
    response=(
        Field("throttle_time_ms", INT32, "3+", ignorable=True),
        Field("brokers", Array(_BROKER)),
        Field("cluster_id", STRING, "2+", nullable="0+", default=None, ignorable=True),
        Field("controller_id", INT32, "1+", default=-1, ignorable=True),
        Field("topics", Array(_RESPONSE_TOPIC)),
        Field("cluster_authorized_operations", INT32, "8-10", default=-2147483648),
    ),
)
