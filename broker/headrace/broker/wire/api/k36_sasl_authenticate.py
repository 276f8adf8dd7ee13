"""SaslAuthenticate (key 36): carries the tokens of a SASL exchange."""

from headrace.broker.wire.fields import BYTES, INT16, INT64, STRING, Field
from headrace.broker.wire.schema import Api

API = Api(
    key=36,
    name="SaslAuthenticate",
    versions=(0, 2),
    flexible=2,
    request=(Field("auth_bytes", BYTES),),
    response=(
        Field("error_code", INT16),
        Field("error_message", STRING, nullable="0+"),
        Field("auth_bytes", BYTES),
        Field("session_lifetime_ms", INT64, "1+", ignorable=True),
    ),
)
