"""Fetch (key 1): reads record batches from partitions, for consumers and for followers.

Two tagged fields are headrace's own: a client asks for batch headers alone, and is told where that is what it got. A broker
of another kind passes over tagged fields that it does not know (KIP-482), and gives whole batches.
"""

from headrace.broker.wire.fields import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    OWN_TAGS_MIN,
    RECORDS,
    STRING,
    UUID,
    Array,
    Field,
    Struct,
)
from headrace.broker.wire.schema import Api

BATCH_HEADERS_TAG = OWN_TAGS_MIN

_REPLICA_STATE = Struct(
    Field("replica_id", INT32, default=-1),
    Field("replica_epoch", INT64, default=-1),
)

_PARTITION = Struct(
    Field("partition", INT32),
    Field("current_leader_epoch", INT32, "9+", default=-1, ignorable=True),
    Field("fetch_offset", INT64),
    Field("last_fetched_epoch", INT32, "12+", default=-1),
    Field("log_start_offset", INT64, "5+", default=-1, ignorable=True),
    Field("partition_max_bytes", INT32),
    Field("replica_directory_id", UUID, "17+", ignorable=True, tag=0),
)

_TOPIC = Struct(
    Field("topic", STRING, "0-12", ignorable=True),
    Field("topic_id", UUID, "13+", ignorable=True),
    Field("partitions", Array(_PARTITION)),
)

_FORGOTTEN_TOPIC = Struct(
    Field("topic", STRING, "7-12", ignorable=True),
    Field("topic_id", UUID, "13+", ignorable=True),
    Field("partitions", Array(INT32)),
)

_EPOCH_END_OFFSET = Struct(
    Field("epoch", INT32, default=-1),
    Field("end_offset", INT64, default=-1),
)

_LEADER_ID_AND_EPOCH = Struct(
    Field("leader_id", INT32, default=-1),
    Field("leader_epoch", INT32, default=-1),
)

_SNAPSHOT_ID = Struct(
    Field("end_offset", INT64, default=-1),
    Field("epoch", INT32, default=-1),
)

_ABORTED_TRANSACTION = Struct(
    Field("producer_id", INT64),
    Field("first_offset", INT64),
)

_PARTITION_DATA = Struct(
    Field("partition_index", INT32),
    Field("error_code", INT16),
    Field("high_watermark", INT64),
    Field("last_stable_offset", INT64, "4+", default=-1, ignorable=True),
    Field("log_start_offset", INT64, "5+", default=-1, ignorable=True),
    Field("diverging_epoch", _EPOCH_END_OFFSET, "12+", tag=0),
    Field("current_leader", _LEADER_ID_AND_EPOCH, "12+", tag=1),
    Field("snapshot_id", _SNAPSHOT_ID, "12+", tag=2),
    Field("is_batch_headers", BOOL, "12+", ignorable=True, tag=BATCH_HEADERS_TAG),
    Field("aborted_transactions", Array(_ABORTED_TRANSACTION), "4+", nullable="0+", ignorable=True),
    Field("preferred_read_replica", INT32, "11+", default=-1),
    Field("records", RECORDS),
)

_FETCHABLE_TOPIC_RESPONSE = Struct(
    Field("topic", STRING, "0-12", ignorable=True),
    Field("topic_id", UUID, "13+", ignorable=True),
    Field("partitions", Array(_PARTITION_DATA)),
)

_NODE_ENDPOINT = Struct(
    Field("node_id", INT32),
    Field("host", STRING),
    Field("port", INT32),
    Field("rack", STRING, nullable="0+", default=None),
)

API = Api(
    key=1,
    name="Fetch",
    versions=(0, 17),
    flexible=12,
    request=(
        Field("cluster_id", STRING, "12+", nullable="0+", default=None, ignorable=True, tag=0),
        Field("replica_id", INT32, "0-14", default=-1),
        Field("replica_state", _REPLICA_STATE, "15+", tag=1),
        Field("wants_batch_headers", BOOL, "12+", ignorable=True, tag=BATCH_HEADERS_TAG),
        Field("max_wait_ms", INT32),
        Field("min_bytes", INT32),
        Field("max_bytes", INT32, "3+", default=0x7FFFFFFF, ignorable=True),
        Field("isolation_level", INT8, "4+", ignorable=True),
        Field("session_id", INT32, "7+", ignorable=True),
        Field("session_epoch", INT32, "7+", default=-1, ignorable=True),
        Field("topics", Array(_TOPIC)),
        Field("forgotten_topics_data", Array(_FORGOTTEN_TOPIC), "7+"),
        Field("rack_id", STRING, "11+", ignorable=True),
    ),
    response=(
        Field("throttle_time_ms", INT32, "1+", ignorable=True),
        Field("error_code", INT16, "7+", ignorable=True),
        Field("session_id", INT32, "7+"),
        Field("responses", Array(_FETCHABLE_TOPIC_RESPONSE)),
        Field("node_endpoints", Array(_NODE_ENDPOINT), "16+", tag=0),
    ),
)
