"""ExpireDelegationToken (key 40): ends a delegation token."""

from headrace.broker.wire.fields import BYTES, INT16, INT32, INT64, Field
from headrace.broker.wire.schema import Api

API = Api(
    key=40,
    name="ExpireDelegationToken",
    versions=(0, 2),
    flexible=2,
    request=(
        Field("hmac", BYTES),
        Field("expiry_time_period_ms", INT64),
    ),
    response=(
        Field("error_code", INT16),
        Field("expiry_timestamp_ms", INT64),
        Field("throttle_time_ms", INT32),
    ),
)
