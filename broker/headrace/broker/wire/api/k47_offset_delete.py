"""OffsetDelete (key 47): deletes a group's positions."""

from headrace.broker.wire.fields import INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_REQUEST_PARTITION = Struct(
    Field("partition_index", INT32),
)

_REQUEST_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(_REQUEST_PARTITION)),
)

_RESPONSE_PARTITION = Struct(
    Field("partition_index", INT32),
    Field("error_code", INT16),
)

_RESPONSE_TOPIC = Struct(
    Field("name", STRING),
    Field("partitions", Array(_RESPONSE_PARTITION)),
)

API = Api(
    key=47,
    name="OffsetDelete",
    versions=(0, 0),
    flexible=None,
    request=(
        Field("group_id", STRING),
        Field("topics", Array(_REQUEST_TOPIC)),
    ),
    response=(
        Field("error_code", INT16),
        Field("throttle_time_ms", INT32, ignorable=True),
        Field("topics", Array(_RESPONSE_TOPIC)),
    ),
)
