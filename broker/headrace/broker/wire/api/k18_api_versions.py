"""ApiVersions (key 18): lists the API keys and versions of a broker."""

from headrace.broker.wire.fields import BOOL, INT16, INT32, INT64, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_API_VERSION = Struct(
    Field("api_key", INT16),
    Field("min_version", INT16),
    Field("max_version", INT16),
)

_SUPPORTED_FEATURE_KEY = Struct(
    Field("name", STRING),
    Field("min_version", INT16),
    Field("max_version", INT16),
)

_FINALIZED_FEATURE_KEY = Struct(
    Field("name", STRING),
    Field("max_version_level", INT16),
    Field("min_version_level", INT16),
)

API = Api(
    key=18,
    name="ApiVersions",
    versions=(0, 4),
    flexible=3,
    request=(
        Field("client_software_name", STRING, "3+", ignorable=True),
        Field("client_software_version", STRING, "3+", ignorable=True),
    ),
    response=(
        Field("error_code", INT16),
        Field("api_keys", Array(_API_VERSION)),
        Field("throttle_time_ms", INT32, "1+", ignorable=True),
        Field("supported_features", Array(_SUPPORTED_FEATURE_KEY), "3+", ignorable=True, tag=0),
        Field("finalized_features_epoch", INT64, "3+", default=-1, ignorable=True, tag=1),
        Field("finalized_features", Array(_FINALIZED_FEATURE_KEY), "3+", ignorable=True, tag=2),
        Field("zk_migration_ready", BOOL, "3+", ignorable=True, tag=3),
    ),
)
