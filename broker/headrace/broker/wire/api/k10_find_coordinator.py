"""FindCoordinator (key 10): names the broker that coordinates a group or a transactional id."""

from headrace.broker.wire.fields import INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_COORDINATOR = Struct(
    Field("key", STRING),
    Field("node_id", INT32),
    Field("host", STRING),
    Field("port", INT32),
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+", ignorable=True),
)

API = Api(
    key=10,
    name="FindCoordinator",
    versions=(0, 6),
    flexible=3,
    request=(
        Field("key", STRING, "0-3"),
        Field("key_type", INT8, "1+"),
        Field("coordinator_keys", Array(STRING), "4+"),
    ),
    response=(
        Field("throttle_time_ms", INT32, "1+", ignorable=True),
        Field("error_code", INT16, "0-3"),
        Field("error_message", STRING, "1-3", nullable="0+", ignorable=True),
        Field("node_id", INT32, "0-3"),
        Field("host", STRING, "0-3"),
        Field("port", INT32, "0-3"),
        Field("coordinators", Array(_COORDINATOR), "4+"),
    ),
)
