"""UpdateFeatures (key 57): changes finalized feature versions."""

from headrace.broker.wire.fields import BOOL, INT8, INT16, INT32, STRING, Array, Field, Struct
from headrace.broker.wire.schema import Api

_FEATURE_UPDATE_KEY = Struct(
    Field("feature", STRING),
    Field("max_version_level", INT16),
    Field("allow_downgrade", BOOL, "0"),
    Field("upgrade_type", INT8, "1+", default=1),
)

_UPDATABLE_FEATURE_RESULT = Struct(
    Field("feature", STRING),
    Field("error_code", INT16),
    Field("error_message", STRING, nullable="0+"),
)

API = Api(
    key=57,
    name="UpdateFeatures",
    versions=(0, 1),
    flexible=0,
    request=(
        Field("timeout_ms", INT32, default=60000),
        Field("feature_updates", Array(_FEATURE_UPDATE_KEY)),
        Field("validate_only", BOOL, "1+"),
    ),
    response=(
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("error_message", STRING, nullable="0+"),
        Field("results", Array(_UPDATABLE_FEATURE_RESULT)),
    ),
)
