"""AlterPartition (key 56): a leader proposes in-sync replicas to the controller."""

from headrace.broker.wire.fields import INT8, INT16, INT32, INT64, STRING, UUID, Array, Field, Struct
from headrace.broker.wire.schema import Api

_BROKER_STATE = Struct(
    Field("broker_id", INT32),
    Field("broker_epoch", INT64, default=-1),
)

_REQUEST_PARTITION_DATA = Struct(
    Field("partition_index", INT32),
    Field("leader_epoch", INT32),
    Field("new_isr", Array(INT32), "0-2"),
    Field("new_isr_with_epochs", Array(_BROKER_STATE), "3+"),
    Field("leader_recovery_state", INT8, "1+"),
    Field("partition_epoch", INT32),
)

_REQUEST_TOPIC_DATA = Struct(
    Field("topic_name", STRING, "0-1", ignorable=True),
    Field("topic_id", UUID, "2+", ignorable=True),
    Field("partitions", Array(_REQUEST_PARTITION_DATA)),
)

_RESPONSE_PARTITION_DATA = Struct(
    Field("partition_index", INT32),
    Field("error_code", INT16),
    Field("leader_id", INT32),
    Field("leader_epoch", INT32),
    Field("isr", Array(INT32)),
    Field("leader_recovery_state", INT8, "1+", ignorable=True),
    Field("partition_epoch", INT32),
)

_RESPONSE_TOPIC_DATA = Struct(
    Field("topic_name", STRING, "0-1", ignorable=True),
    Field("topic_id", UUID, "2+", ignorable=True),
    Field("partitions", Array(_RESPONSE_PARTITION_DATA)),
)

API = Api(
    key=56,
    name="AlterPartition",
    versions=(0, 3),
    flexible=0,
    request=(
        Field("broker_id", INT32),
        Field("broker_epoch", INT64, default=-1),
        Field("topics", Array(_REQUEST_TOPIC_DATA)),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("topics", Array(_RESPONSE_TOPIC_DATA)),
    ),
)
