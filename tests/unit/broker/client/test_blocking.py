"""A blocking link to one broker, through a real socket."""

from __future__ import annotations

import socket

import pytest
from scripted_broker import API_VERSIONS, Answer, scripted_broker, versions

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire.api import k03_metadata, k23_offset_for_leader_epoch
from headrace.broker.wire.client.exchange import ProtocolError

LARGE = [{"node_id": number, "host": "h" * 1000, "port": 9092} for number in range(300)]
CLUSTER = {"brokers": LARGE, "controller_id": 4}


def serve(key: int, message: dict[str, object]) -> Answer:
    return versions({3: (0, 12)}) if key == API_VERSIONS else CLUSTER


def test_versions_are_agreed_on_once_and_every_request_is_answered() -> None:
    with scripted_broker(serve) as broker, BlockingLink(broker.address, "test", 5) as link:
        for _ in range(3):
            answer = link.ask(k03_metadata.API, 12, {"topics": None})
            assert [broker["host"] for broker in answer["brokers"]] == ["h" * 1000] * 300
        with pytest.raises(UnsupportedVersionError, match="does not serve OffsetForLeaderEpoch"):
            link.ask(k23_offset_for_leader_epoch.API, 3, {"topics": []})
    assert broker.keys == [API_VERSIONS, 3, 3, 3]


def test_with_fixed_versions_nobody_is_asked_for_them() -> None:
    with (
        scripted_broker(serve) as broker,
        BlockingLink(broker.address, "test", 5, negotiates=False) as link,
    ):
        assert link.ask(k03_metadata.API, 12, {"topics": []})["controller_id"] == 4
    assert broker.keys == [3]


def test_links_have_numbers_of_their_own() -> None:
    with scripted_broker(serve) as broker:
        numbers = set()
        for _ in range(3):
            with BlockingLink(broker.address, "test", 5) as link:
                numbers.add(link.number)
    assert len(numbers) == 3


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (b"", "closed the connection"),
        (b"\x00\x00\x00\x20\x00\x00", "closed the connection"),
        (b"\x7f\xff\xff\xff", "announced an answer"),
        (b"\xff\xff\xff\xff", "announced an answer"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x63\x00", "answered request 99 instead of 1"),
    ],
)
def test_a_peer_that_is_no_broker_is_no_use(reply: bytes, sentence: str) -> None:
    with (
        scripted_broker(lambda key, message: reply) as broker,
        pytest.raises(ProtocolError, match=sentence),
    ):
        BlockingLink(broker.address, "test", 5)


def test_a_broker_that_does_not_answer_in_time_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        BlockingLink(silent.getsockname(), "test", 0.01)
