"""ListGroups (key 16): lists the groups of a coordinator."""

from headrace.broker.wire.fields import INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_LISTED_GROUP = Struct(
    Field("group_id", STRING),
    Field("protocol_type", STRING),
    Field("group_state", STRING, "4+", ignorable=True),
    Field("group_type", STRING, "5+", ignorable=True),
)

API = Api(
    key=16,
    name="ListGroups",
    versions=(0, 5),
    flexible=3,
    request=(
        Field("states_filter", Array(STRING), "4+"),
        Field("types_filter", Array(STRING), "5+"),
    ),
    response=(
        Field("throttle_time_ms", INT32, "1+", ignorable=True),
        Field("error_code", INT16),
        Field("groups", Array(_LISTED_GROUP)),
    ),
)
