"""UpdateFeatures: nothing is supported, so every update is refused, each with its reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from calls import call_in

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers import k57_update_features


def answered(version: int, *updates: dict[str, Any], is_controller: bool = True) -> dict[str, Any]:
    api = k57_update_features.API
    broker: Any = SimpleNamespace(control=SimpleNamespace(is_controller=is_controller), authorizer=None)
    request = api.decode_request(version, api.encode_request(version, {"feature_updates": list(updates)}))
    response = k57_update_features.handle(broker, call_in(version), request)
    return api.decode_response(version, api.encode_response(version, response))


@pytest.mark.parametrize("version", [0, 1])
def test_no_update_at_all_succeeds_and_only_the_controller_says_so(version: int) -> None:
    response = answered(version)
    assert (response["error_code"], response["results"]) == (ErrorCode.NONE, [])
    response = answered(version, {"feature": "f", "max_version_level": 1}, is_controller=False)
    assert (response["error_code"], response["results"]) == (ErrorCode.NOT_CONTROLLER, [])


@pytest.mark.parametrize(
    ("feature", "level", "kind", "reason"),
    [
        ("", 1, 1, "Feature name can not be empty."),
        ("f", 1, 0, "Received unknown upgrade type."),
        ("f", 1, 4, "Received unknown upgrade type."),
        ("f", 1, 1, "the provided feature is not supported."),
        ("f", 1, 2, "the provided feature is not supported."),
        ("f", 0, 2, "Can not delete non-existing finalized feature."),
        ("f", -1, 3, "Can not delete non-existing finalized feature."),
        ("f", 0, 1, "Can not provide versionLevel: 0 less than 1"),
    ],
)
def test_each_update_is_refused_with_its_reason(feature: str, level: int, kind: int, reason: str) -> None:
    response = answered(1, {"feature": feature, "max_version_level": level, "upgrade_type": kind})
    ((result),) = response["results"]
    assert (result["feature"], result["error_code"]) == (feature, ErrorCode.INVALID_REQUEST)
    assert reason in result["error_message"]


def test_version_0_says_by_a_flag_whether_a_feature_may_be_taken_back() -> None:
    for flag, reason in ((True, "Can not delete"), (False, "Can not provide versionLevel")):
        response = answered(0, {"feature": "f", "max_version_level": 0, "allow_downgrade": flag})
        assert response["results"][0]["error_message"].startswith(reason)
