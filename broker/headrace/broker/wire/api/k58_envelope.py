"""Envelope (key 58): a broker forwards a client's request to the controller."""

from headrace.broker.wire.fields import BYTES, INT16, Field
from headrace.broker.wire.schema import Api

API = Api(
    key=58,
    name="Envelope",
    versions=(0, 0),
    flexible=0,
    request=(
        Field("request_data", BYTES),
        Field("request_principal", BYTES, nullable="0+"),
        Field("client_host_address", BYTES),
    ),
    response=(
        Field("response_data", BYTES, nullable="0+", default=None),
        Field("error_code", INT16),
    ),
)
