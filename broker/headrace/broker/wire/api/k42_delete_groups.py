"""DeleteGroups (key 42): deletes empty groups."""

from headrace.broker.wire.fields import INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_DELETABLE_GROUP_RESULT = Struct(
    Field("group_id", STRING),
    Field("error_code", INT16),
)

API = Api(
    key=42,
    name="DeleteGroups",
    versions=(0, 2),
    flexible=2,
    request=(Field("groups_names", Array(STRING)),),
    response=(
        Field("throttle_time_ms", INT32),
        Field("results", Array(_DELETABLE_GROUP_RESULT)),
    ),
)
