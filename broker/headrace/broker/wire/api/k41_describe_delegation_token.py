"""DescribeDelegationToken (key 41): lists delegation tokens."""

from headrace.broker.wire.fields import BYTES, INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_OWNER = Struct(
    Field("principal_type", STRING),
    Field("principal_name", STRING),
)

_DESCRIBED_DELEGATION_TOKEN_RENEWER = Struct(
    Field("principal_type", STRING),
    Field("principal_name", STRING),
)

_DESCRIBED_DELEGATION_TOKEN = Struct(
    Field("principal_type", STRING),
    Field("principal_name", STRING),
    Field("token_requester_principal_type", STRING, "3+"),
    Field("token_requester_principal_name", STRING, "3+"),
    Field("issue_timestamp", INT64),
    Field("expiry_timestamp", INT64),
    Field("max_timestamp", INT64),
    Field("token_id", STRING),
    Field("hmac", BYTES),
    Field("renewers", Array(_DESCRIBED_DELEGATION_TOKEN_RENEWER)),
)

API = Api(
    key=41,
    name="DescribeDelegationToken",
    versions=(0, 3),
    flexible=2,
    request=(Field("owners", Array(_OWNER), nullable="0+"),),
    response=(
        Field("error_code", INT16),
        Field("tokens", Array(_DESCRIBED_DELEGATION_TOKEN)),
        Field("throttle_time_ms", INT32),
    ),
)
