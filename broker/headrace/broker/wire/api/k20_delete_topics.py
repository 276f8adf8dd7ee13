"""DeleteTopics (key 20): deletes topics."""

from headrace.broker.wire.fields import INT16, INT32, STRING, UUID, Array, Field, Struct
from headrace.broker.wire.schema import Api

_DELETE_TOPIC_STATE = Struct(
    Field("name", STRING, nullable="0+", default=None),
    Field("topic_id", UUID),
)

_DELETABLE_TOPIC_RESULT = Struct(
    Field("name", STRING, nullable="6+"),
    Field("topic_id", UUID, "6+", ignorable=True),
    Field("error_code", INT16),
    Field("error_message", STRING, "5+", nullable="0+", default=None, ignorable=True),
)

API = Api(
    key=20,
    name="DeleteTopics",
    versions=(0, 6),
    flexible=4,
    request=(
        Field("topics", Array(_DELETE_TOPIC_STATE), "6+"),
        Field("topic_names", Array(STRING), "0-5", ignorable=True),
        Field("timeout_ms", INT32),
    ),
    response=(
        Field("throttle_time_ms", INT32, "1+", ignorable=True),
        Field("responses", Array(_DELETABLE_TOPIC_RESULT)),
    ),
)
