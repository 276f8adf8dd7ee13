"""ControlledShutdown (key 7): a broker asks the controller to move its leaderships away."""

from headrace.broker.wire.fields import INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_REMAINING_PARTITION = Struct(
    Field("topic_name", STRING),
    Field("partition_index", INT32),
)

API = Api(
    key=7,
    name="ControlledShutdown",
    versions=(0, 3),
    flexible=3,
    request=(
        Field("broker_id", INT32),
        Field("broker_epoch", INT64, "2+", default=-1, ignorable=True),
    ),
    response=(
        Field("error_code", INT16),
        Field("remaining_partitions", Array(_REMAINING_PARTITION)),
    ),
)
