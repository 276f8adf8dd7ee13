"""What is answered again byte for byte is not read again."""

from __future__ import annotations

import pytest

from headrace.broker.wire.api import k03_metadata
from headrace.broker.wire.client.repeated import Repeated
from headrace.broker.wire.fields import MalformedError

BROKER = {"node_id": 1, "host": "east", "port": 9092, "rack": None}


def metadata(controller_id: int, version: int = 12) -> memoryview:
    answer = {"brokers": [BROKER], "cluster_id": "c", "controller_id": controller_id, "topics": []}
    return memoryview(bytearray(b"head" + bytes(k03_metadata.API.encode_response(version, answer))))


def test_equal_bytes_are_the_same_answer_until_others_come() -> None:
    api = Repeated(k03_metadata.API)
    buffer = metadata(1)
    first = api.decode_response(12, buffer, 4)
    assert first["controller_id"] == 1
    # The buffer is received into again.
    buffer[:] = bytes(len(buffer))
    assert api.decode_response(12, metadata(1), 4) is first
    assert api.decode_response(12, metadata(2), 4)["controller_id"] == 2
    assert api.decode_response(12, metadata(1), 4)["controller_id"] == 1


def test_another_version_is_read_anew() -> None:
    api = Repeated(k03_metadata.API)
    assert api.decode_response(11, metadata(1, 11), 4) == k03_metadata.API.decode_response(
        11, metadata(1, 11), 4
    )
    with pytest.raises(MalformedError):
        api.decode_response(1, metadata(1, 11), 4)
    assert api.decode_response(12, metadata(3), 4)["controller_id"] == 3


def test_it_asks_as_the_api_does() -> None:
    api = Repeated(k03_metadata.API)
    assert (api.key, api.name) == (k03_metadata.API.key, k03_metadata.API.name)
    request = {"topics": None, "allow_auto_topic_creation": False}
    assert api.encode_request(12, request) == k03_metadata.API.encode_request(12, request)
