"""ConsumerGroupDescribe (key 69): shows KIP-848 groups."""

from headrace.broker.wire.fields import BOOL, INT16, INT32, STRING, UUID, Array, Field, Struct
from headrace.broker.wire.schema import Api

_TOPIC_PARTITIONS = Struct(
    Field("topic_id", UUID),
    Field("topic_name", STRING),
    Field("partitions", Array(INT32)),
)

_ASSIGNMENT = Struct(
    Field("topic_partitions", Array(_TOPIC_PARTITIONS)),
)

_MEMBER = Struct(
    Field("member_id", STRING),
    Field("instance_id", STRING, nullable="0+", default=None),
    Field("rack_id", STRING, nullable="0+", default=None),
    Field("member_epoch", INT32),
    Field("client_id", STRING),
    Field("client_host", STRING),
    Field("subscribed_topic_names", Array(STRING)),
    Field("subscribed_topic_regex", STRING, nullable="0+", default=None),
    Field("assignment", _ASSIGNMENT),
    Field("target_assignment", _ASSIGNMENT),
)

_DESCRIBED_GROUP = Struct(
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+", default=None),
    Field("group_id", STRING),
    Field("group_state", STRING),
    Field("group_epoch", INT32),
    Field("assignment_epoch", INT32),
    Field("assignor_name", STRING),
    Field("members", Array(_MEMBER)),
    Field("authorized_operations", INT32, default=-2147483648),
)

API = Api(
    key=69,
    name="ConsumerGroupDescribe",
    versions=(0, 0),
    flexible=0,
    request=(
        Field("group_ids", Array(STRING)),
        Field("include_authorized_operations", BOOL),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("groups", Array(_DESCRIBED_GROUP)),
    ),
)
