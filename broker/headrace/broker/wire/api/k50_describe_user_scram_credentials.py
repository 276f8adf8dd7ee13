"""DescribeUserScramCredentials (key 50): lists SCRAM credentials."""

from headrace.broker.wire.fields import INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_USER_NAME = Struct(
    Field("name", STRING),
)

_CREDENTIAL_INFO = Struct(
    Field("mechanism", INT8),
    Field("iterations", INT32),
)

_RESULT = Struct(
    Field("user", STRING),
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
    Field("credential_infos", Array(_CREDENTIAL_INFO)),
)

API = Api(
    key=50,
    name="DescribeUserScramCredentials",
    versions=(0, 0),
    flexible=0,
    request=(Field("users", Array(_USER_NAME), nullable="0+"),),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("error_message", STRING, nullable="0+"),
        Field("results", Array(_RESULT)),
    ),
)
