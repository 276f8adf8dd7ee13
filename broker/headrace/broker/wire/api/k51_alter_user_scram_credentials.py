"""AlterUserScramCredentials (key 51): changes SCRAM credentials."""

from headrace.broker.wire.fields import BYTES, INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_SCRAM_CREDENTIAL_DELETION = Struct(
    Field("name", STRING),
    Field("mechanism", INT8),
)

_SCRAM_CREDENTIAL_UPSERTION = Struct(
    Field("name", STRING),
    Field("mechanism", INT8),
    Field("iterations", INT32),
    Field("salt", BYTES),
    Field("salted_password", BYTES),
)

_RESULT = Struct(
    Field("user", STRING),
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
)

API = Api(
    key=51,
    name="AlterUserScramCredentials",
    versions=(0, 0),
    flexible=0,
    request=(
        Field("deletions", Array(_SCRAM_CREDENTIAL_DELETION)),
        Field("upsertions", Array(_SCRAM_CREDENTIAL_UPSERTION)),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("results", Array(_RESULT)),
    ),
)
