"""Produce (key 0): appends record batches to partitions."""

from headrace.broker.wire.fields import INT16, INT32, INT64, RECORDS, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_PARTITION_PRODUCE_DATA = Struct(
    Field("index", INT32),
    Field("records", RECORDS),
)

_TOPIC_PRODUCE_DATA = Struct(
    Field("name", STRING),
    Field("partition_data", Array(_PARTITION_PRODUCE_DATA)),
)

_BATCH_INDEX_AND_ERROR_MESSAGE = Struct(
    Field("batch_index", INT32),
    Field("batch_index_error_message", STRING, nullable="0+", default=None),
)

_LEADER_ID_AND_EPOCH = Struct(
    Field("leader_id", INT32, default=-1),
    Field("leader_epoch", INT32, default=-1),
)

_PARTITION_PRODUCE_RESPONSE = Struct(
    Field("index", INT32),
    Field("error_code", INT16),
    Field("base_offset", INT64),
    Field("log_append_time_ms", INT64, "2+", default=-1, ignorable=True),
    Field("log_start_offset", INT64, "5+", default=-1, ignorable=True),
    Field("record_errors", Array(_BATCH_INDEX_AND_ERROR_MESSAGE), "8+", ignorable=True),
    Field("error_message", STRING, "8+", nullable="0+", default=None, ignorable=True),
    Field("current_leader", _LEADER_ID_AND_EPOCH, "10+", tag=0),
)

_TOPIC_PRODUCE_RESPONSE = Struct(
    Field("name", STRING),
    Field("partition_responses", Array(_PARTITION_PRODUCE_RESPONSE)),
)

_NODE_ENDPOINT = Struct(
    Field("node_id", INT32),
    Field("host", STRING),
    Field("port", INT32),
    Field("rack", STRING, nullable="0+", default=None),
)

API = Api(
    key=0,
    name="Produce",
    versions=(0, 11),
    flexible=9,
    request=(
        Field("transactional_id", STRING, "3+", nullable="0+", default=None),
        Field("acks", INT16),
        Field("timeout_ms", INT32),
        Field("topic_data", Array(_TOPIC_PRODUCE_DATA)),
    ),
    response=(
        Field("responses", Array(_TOPIC_PRODUCE_RESPONSE)),
        Field("throttle_time_ms", INT32, "1+", ignorable=True),
        Field("node_endpoints", Array(_NODE_ENDPOINT), "10+", tag=0),
    ),
)
