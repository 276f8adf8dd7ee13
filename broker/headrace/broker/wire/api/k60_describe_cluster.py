"""DescribeCluster (key 60): names the cluster, its brokers and its controller."""

from headrace.broker.wire.fields import BOOL, INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_BROKER = Struct(
    Field("broker_id", INT32),
    Field("host", STRING),
    Field("port", INT32),
    Field("rack", STRING, nullable="0+", default=None),
)

API = Api(
    key=60,
    name="DescribeCluster",
    versions=(0, 1),
    flexible=0,
    request=(
        Field("include_cluster_authorized_operations", BOOL),
        Field("endpoint_type", INT8, "1+", default=1),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("error_message", STRING, nullable="0+", default=None),
        Field("endpoint_type", INT8, "1+", default=1),
        Field("cluster_id", STRING),
        Field("controller_id", INT32, default=-1),
        Field("brokers", Array(_BROKER)),
        Field("cluster_authorized_operations", INT32, default=-2147483648),
    ),
)
