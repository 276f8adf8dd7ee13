"""RenewDelegationToken (key 39): extends a delegation token."""

from headrace.broker.wire.fields import BYTES, INT16, INT32, INT64, Field
from headrace.broker.wire.schema import Api

API = Api(
    key=39,
    name="RenewDelegationToken",
    versions=(0, 2),
    flexible=2,
    request=(
        Field("hmac", BYTES),
        Field("renew_period_ms", INT64),
    ),
    response=(
        Field("error_code", INT16),
        Field("expiry_timestamp_ms", INT64),
        Field("throttle_time_ms", INT32),
    ),
)
