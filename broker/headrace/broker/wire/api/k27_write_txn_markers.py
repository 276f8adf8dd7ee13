"""WriteTxnMarkers (key 27): the transaction coordinator has markers written to the partitions."""

from headrace.broker.wire.fields import BOOL, INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_WRITABLE_TXN_MARKER_TOPIC = Struct(
    Field("name", STRING),
    Field("partition_indexes", Array(INT32)),
)

_WRITABLE_TXN_MARKER = Struct(
    Field("producer_id", INT64),
    Field("producer_epoch", INT16),
    Field("transaction_result", BOOL),
    Field("topics", Array(_WRITABLE_TXN_MARKER_TOPIC)),
    Field("coordinator_epoch", INT32),
)

_WRITABLE_TXN_MARKER_PARTITION_RESULT = Struct(
    Field("partition_index", INT32),
    Field("error_code", INT16),
)

_WRITABLE_TXN_MARKER_TOPIC_RESULT = Struct(
    Field("name", STRING),
    Field("partitions", Array(_WRITABLE_TXN_MARKER_PARTITION_RESULT)),
)

_WRITABLE_TXN_MARKER_RESULT = Struct(
    Field("producer_id", INT64),
    Field("topics", Array(_WRITABLE_TXN_MARKER_TOPIC_RESULT)),
)

API = Api(
    key=27,
    name="WriteTxnMarkers",
    versions=(0, 1),
    flexible=1,
    request=(Field("markers", Array(_WRITABLE_TXN_MARKER)),),
    response=(Field("markers", Array(_WRITABLE_TXN_MARKER_RESULT)),),
)
