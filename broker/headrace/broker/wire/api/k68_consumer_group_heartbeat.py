"""ConsumerGroupHeartbeat (key 68): membership and assignment in KIP-848 groups."""

from headrace.broker.wire.fields import INT16, INT32, STRING, UUID, Array, Field, Struct
from headrace.broker.wire.schema import Api

_REQUEST_TOPIC_PARTITIONS = Struct(
    Field("topic_id", UUID),
    Field("partitions", Array(INT32)),
)

_RESPONSE_TOPIC_PARTITIONS = Struct(
    Field("topic_id", UUID),
    Field("partitions", Array(INT32)),
)

_ASSIGNMENT = Struct(
    Field("topic_partitions", Array(_RESPONSE_TOPIC_PARTITIONS)),
)

API = Api(
    key=68,
    name="ConsumerGroupHeartbeat",
    versions=(0, 0),
    flexible=0,
    request=(
        Field("group_id", STRING),
        Field("member_id", STRING),
        Field("member_epoch", INT32),
        Field("instance_id", STRING, nullable="0+", default=None),
        Field("rack_id", STRING, nullable="0+", default=None),
        Field("rebalance_timeout_ms", INT32, default=-1),
        Field("subscribed_topic_names", Array(STRING), nullable="0+", default=None),
        Field("server_assignor", STRING, nullable="0+", default=None),
        Field("topic_partitions", Array(_REQUEST_TOPIC_PARTITIONS), nullable="0+", default=None),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("error_message", STRING, nullable="0+", default=None),
        Field("member_id", STRING, nullable="0+", default=None),
        Field("member_epoch", INT32),
        Field("heartbeat_interval_ms", INT32),
        Field("assignment", _ASSIGNMENT, nullable="0+", default=None),
    ),
)
