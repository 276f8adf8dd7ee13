"""SaslHandshake (key 17): chooses a SASL mechanism."""

from headrace.broker.wire.fields import INT16, STRING, Array, Field
from headrace.broker.wire.schema import Api

API = Api(
    key=17,
    name="SaslHandshake",
    versions=(0, 1),
    flexible=None,
    request=(Field("mechanism", STRING),),
    response=(
        Field("error_code", INT16),
        Field("mechanisms", Array(STRING)),
    ),
)
