"""The gate: what every request passes on its way to a handler, and what of it comes back as the end of a connection."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.errors import InvalidRequestError
from headrace.broker.handlers import table
from headrace.broker.handlers.call import Call, Client
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.handlers.table import HANDLERS, Handler, serve
from headrace.broker.quotas.usage import unlimited
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

PRODUCE, HEARTBEAT, API_VERSIONS, END_TXN = 0, 12, 18, 26
CLIENT = Client("here", "INSIDE")


def request(key: int, version: int, body: bytes = b"", correlation_id: int = 7) -> memoryview:
    return memoryview(frames.encode_request_header(key, version, correlation_id, "unit") + body)


@pytest.fixture
def broker() -> Any:
    counted: list[tuple[int, int]] = []
    failed: list[tuple[int, int]] = []
    return SimpleNamespace(
        counted=counted,
        failed=failed,
        client_usage=unlimited(),
        api_versions={HEARTBEAT: (0, 4), API_VERSIONS: (1, 3)},
        metrics=SimpleNamespace(
            request=lambda *request: counted.append(request), failed=lambda *error: failed.append(error)
        ),
    )


def test_a_handler_is_given_who_asks_and_since_when(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Call] = []

    def handle(services: Any, call: Call, frame: memoryview) -> Any:
        calls.append(call)
        return [b"done"]

    monkeypatch.setitem(HANDLERS, HEARTBEAT, Handler(HEARTBEAT, "H", 0, 4, APIS[HEARTBEAT], handle))
    frame = request(HEARTBEAT, 3)
    assert serve(broker, CLIENT, frame, (), 12.5) == (HEARTBEAT, [b"done"], 0)
    (call,) = calls
    assert (call.header.version, call.header.correlation_id) == (3, 7)
    assert call.client is CLIENT
    assert call.began_s == 12.5
    assert broker.counted == [(HEARTBEAT, len(frame))]


def test_requests_that_a_handler_serves_together_are_each_counted(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle_run(
        services: Any, call: Call, frame: memoryview, more: Iterable[memoryview]
    ) -> tuple[Any, int]:
        return ([b"both"], 1) if more else ([b"one"], 0)

    handler = Handler(PRODUCE, "P", 0, 9, APIS[PRODUCE], None, handle_run)
    monkeypatch.setitem(HANDLERS, PRODUCE, handler)
    first, second, third = (request(PRODUCE, 9, bytes(size)) for size in (1, 20, 300))
    assert serve(broker, CLIENT, first, [second, third], 0.0) == (PRODUCE, [b"both"], 1)
    assert broker.counted == [(PRODUCE, len(first)), (PRODUCE, len(second))]
    assert serve(broker, CLIENT, third, [], 0.0) == (PRODUCE, [b"one"], 0)


def test_what_clients_repeat_is_decoded_once_and_what_differs_is_not_mixed_up(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, seen = APIS[END_TXN], cast("list[dict[str, Any]]", [])

    def handle(services: Any, call: Call, request: dict[str, Any]) -> dict[str, Any]:
        seen.append(request)
        return {"error_code": 0}

    module = SimpleNamespace(API=api, VERSIONS=(0, 4), REPEATS=True, handle=handle)
    monkeypatch.setitem(HANDLERS, END_TXN, table._handler(module))
    said = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0, "committed": True}
    large = said | {"transactional_id": "x" * 2 * table.REPEATED_SIZE_MAX}
    for number, message in enumerate((said, said, said | {"producer_epoch": 1}, large, large)):
        frame = request(END_TXN, 1, api.encode_request(1, message), correlation_id=number).tobytes()
        buffer = memoryview(bytearray(frame))
        serve(broker, CLIENT, buffer, (), 0.0)
        buffer[:] = bytes(len(buffer))
    assert seen == [said, said, said | {"producer_epoch": 1}, large, large]
    assert (seen[1] is seen[0], seen[4] is seen[3]) == (True, False)


@pytest.mark.parametrize(
    ("key", "version"), [(HEARTBEAT, 5), (HEARTBEAT, -1), (PRODUCE, 12), (58, 0)], ids=str
)
def test_what_is_not_served_never_reaches_a_handler(broker: Any, key: int, version: int) -> None:
    frame = memoryview(frames.encode_request_header(key, 0, 7, "unit"))
    frame = memoryview(bytes(frame[:2]) + version.to_bytes(2, "big", signed=True) + bytes(frame[4:]) + b"\0")
    with pytest.raises(CloseConnectionError, match=f"api key {key} version {version} is not served here"):
        serve(broker, CLIENT, frame, (), 0.0)
    assert broker.counted == []


@pytest.mark.parametrize("frame", [b"", b"\x7f\xff\0\0\0\0\0\0\0\0", bytes(request(HEARTBEAT, 0, b"\0"))])
def test_what_is_malformed_ends_the_connection(broker: Any, frame: bytes) -> None:
    with pytest.raises(CloseConnectionError):
        serve(broker, CLIENT, memoryview(frame), (), 0.0)


def test_only_api_versions_is_answered_in_a_version_that_nobody_knows(broker: Any) -> None:
    key, reply, _ = serve(broker, CLIENT, request(API_VERSIONS, 99), (), 0.0)
    assert key == API_VERSIONS
    assert isinstance(reply, list)
    answer = APIS[API_VERSIONS].decode_response(0, cast("bytes", reply[0])[4:], 4)
    assert answer["error_code"] == 35
    served = {entry["api_key"]: (entry["min_version"], entry["max_version"]) for entry in answer["api_keys"]}
    assert served == broker.api_versions
    assert broker.failed == [(API_VERSIONS, 35)]


def test_an_error_is_answered_where_the_response_has_a_place_for_it(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise InvalidRequestError("no")

    def handler_of(key: int) -> Handler:
        api = APIS[key]
        return table._handler(SimpleNamespace(API=api, VERSIONS=(0, 0), handle=refuse))

    body = APIS[HEARTBEAT].encode_request(0, {"group_id": "g", "generation_id": 1, "member_id": "m"})
    monkeypatch.setitem(HANDLERS, HEARTBEAT, handler_of(HEARTBEAT))
    _, reply, _ = serve(broker, CLIENT, request(HEARTBEAT, 0, body), (), 0.0)
    assert reply == [frames.frame(frames.encode_response_header(HEARTBEAT, 0, 7), b"\0\x2a")]
    assert broker.failed == [(HEARTBEAT, 42)]
    monkeypatch.setitem(HANDLERS, 15, handler_of(15))
    with pytest.raises(InvalidRequestError):
        serve(broker, CLIENT, request(15, 0, APIS[15].encode_request(0, {"groups": []})), (), 0.0)
