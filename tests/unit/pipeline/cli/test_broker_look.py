"""What a broker says of itself: its release, where it is headrace, and directories that failed; or why it says nothing."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from scripted_broker import API_VERSIONS, scripted_broker, versions

from headrace.broker.errors import ErrorCode
from headrace.broker.wire.client.view import Address
from headrace.cli import broker_answers
from headrace.cli.broker_look import BrokerLook, look_at

DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS = 32, 35


def script(configs: dict[str, str], key: int) -> dict[str, Any]:
    if key == API_VERSIONS:
        return versions({DESCRIBE_CONFIGS: (1, 4), DESCRIBE_LOG_DIRS: (1, 4)})
    if key == DESCRIBE_CONFIGS:
        told = [
            {"name": name, "value": value, "read_only": True, "is_sensitive": False, "synonyms": []}
            for name, value in configs.items()
        ]
        result = {"error_code": 0, "error_message": None, "resource_type": 4, "resource_name": "1"}
        return {"results": [{**result, "configs": told}]}
    failed = {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": "/b", "topics": []}
    return {"error_code": 0, "results": [{"error_code": 0, "log_dir": "/a", "topics": []}, failed]}


@pytest.mark.parametrize(
    ("configs", "engine", "release"),
    [
        ({"inter.broker.protocol.version": "3.9-IV0", "headrace.version": "7.1"}, "headrace", "7.1"),
        ({"inter.broker.protocol.version": "3.9-IV0"}, "kafka", None),
    ],
)
def test_engine_release_and_failed_directories_are_told(
    configs: dict[str, str], engine: str, release: str | None
) -> None:
    with scripted_broker(lambda key, _: script(configs, key)) as broker:
        found = look_at({1: broker.address})
    assert found == {
        1: BrokerLook(engine=engine, version=release, protocol="3.9-IV0", offline_log_dirs=("/b",))
    }


def test_brokers_that_hang_are_waited_for_together_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_answers, "TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        address: Address = hanging.getsockname()
        found = look_at({1: address, 2: address})
    assert [look.failure for look in found.values()] == ["timed out", "timed out"]
