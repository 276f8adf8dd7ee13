"""CreateDelegationToken (key 38): creates a delegation token."""

from headrace.broker.wire.fields import BYTES, INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_CREATABLE_RENEWERS = Struct(
    Field("principal_type", STRING),
    Field("principal_name", STRING),
)

API = Api(
    key=38,
    name="CreateDelegationToken",
    versions=(0, 3),
    flexible=2,
    request=(
        Field("owner_principal_type", STRING, "3+", nullable="0+"),
        Field("owner_principal_name", STRING, "3+", nullable="0+"),
        Field("renewers", Array(_CREATABLE_RENEWERS)),
        Field("max_lifetime_ms", INT64),
    ),
    response=(
        Field("error_code", INT16),
        Field("principal_type", STRING),
        Field("principal_name", STRING),
        Field("token_requester_principal_type", STRING, "3+"),
        Field("token_requester_principal_name", STRING, "3+"),
        Field("issue_timestamp_ms", INT64),
        Field("expiry_timestamp_ms", INT64),
        Field("max_timestamp_ms", INT64),
        Field("token_id", STRING),
        Field("hmac", BYTES),
        Field("throttle_time_ms", INT32),
    ),
)
