"""A blocking link to one broker, through a real socket."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import tls_kit
from scripted_broker import API_VERSIONS, Answer, scripted_broker, versions
from secured_broker import tls_client_settings

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.security import ClientSecurity
from headrace.broker.client.tls_contexts import TlsError
from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.tls.contexts import server_context
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


def test_answers_come_whole_over_tls_and_a_certificate_of_somebody_else_is_one_sentence(
    tmp_path: Path,
) -> None:
    authority, other = tls_kit.authority(), tls_kit.authority("other")
    security = ClientSecurity.of(tls_client_settings(tmp_path, authority))
    for signer in (authority, other):
        keys = tls_kit.pem_settings(
            tmp_path / signer.certificate.subject.rfc4514_string(), tls_kit.signed(signer)
        )
        with scripted_broker(serve, server_context(keys)) as broker:
            if signer is other:
                with pytest.raises(TlsError, match=r"the certificate of 127.0.0.1:\d+ is not accepted"):
                    BlockingLink(broker.address, "test", 5, security=security)
                continue
            with BlockingLink(broker.address, "test", 5, security=security) as link:
                answer = link.ask(k03_metadata.API, 12, {"topics": None})
                assert [each["host"] for each in answer["brokers"]] == ["h" * 1000] * 300


def test_a_broker_that_speaks_tls_is_told_apart_from_one_that_answers_nonsense() -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x46"
    with (
        scripted_broker(lambda key, message: alert) as broker,
        pytest.raises(ProtocolError, match="speaks TLS"),
    ):
        BlockingLink(broker.address, "test", 5)
