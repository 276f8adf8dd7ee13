"""DescribeGroups (key 15): shows members and assignments of groups."""

from headrace.broker.wire.fields import BOOL, BYTES, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_DESCRIBED_GROUP_MEMBER = Struct(
    Field("member_id", STRING),
    Field("group_instance_id", STRING, "4+", nullable="0+", default=None, ignorable=True),
    Field("client_id", STRING),
    Field("client_host", STRING),
    Field("member_metadata", BYTES),
    Field("member_assignment", BYTES),
)

_DESCRIBED_GROUP = Struct(
    Field("error_code", INT16),
    Field("group_id", STRING),
    Field("group_state", STRING),
    Field("protocol_type", STRING),
    Field("protocol_data", STRING),
    Field("members", Array(_DESCRIBED_GROUP_MEMBER)),
    Field("authorized_operations", INT32, "3+", default=-2147483648),
)

API = Api(
    key=15,
    name="DescribeGroups",
    versions=(0, 5),
    flexible=5,
    request=(
        Field("groups", Array(STRING)),
        Field("include_authorized_operations", BOOL, "3+"),
    ),
    response=(
        Field("throttle_time_ms", INT32, "1+", ignorable=True),
        Field("groups", Array(_DESCRIBED_GROUP)),
    ),
)
