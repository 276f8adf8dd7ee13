"""OAUTHBEARER's machines."""

from __future__ import annotations

import pytest

from headrace.broker.auth.sasl.exchange import Authenticated, RefusedError
from headrace.broker.auth.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer

FOUND = Authenticated("alice", 60_000)


def check(token: str, now_ms: int) -> Authenticated:
    if token != "good.token~of/alice_+==":
        raise RefusedError("not good")
    return FOUND


def test_a_good_token_names_its_client() -> None:
    here = OAuthBearerClient("good.token~of/alice_+==", [("logicalCluster", "lkc-1")])
    first = here.step(b"")
    assert first == b"n,,\x01auth=Bearer good.token~of/alice_+==\x01logicalCluster=lkc-1\x01\x01"
    step = OAuthBearerServer(check).step(first, 0)
    assert (step.answer, step.found) == (b"", FOUND)
    here.step(step.answer)
    assert here.is_done


def test_a_token_that_is_not_good_is_answered_and_then_refused() -> None:
    here, there = OAuthBearerClient("bad"), OAuthBearerServer(check)
    answer = there.step(here.step(b""), 0)
    assert (answer.answer, answer.found) == (b'{"status":"invalid_token"}', None)
    goodbye = here.step(answer.answer)
    assert goodbye == b"\x01"
    with pytest.raises(RefusedError) as refused:
        there.step(goodbye, 0)
    assert refused.value.told == '{"status":"invalid_token"}'
    with pytest.raises(RefusedError, match="invalid_token"):
        here.step(b"again")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Basic YTpi\x01\x01",
        b"n,,\x01auth=Bearer good.token~of/alice_+==\x01",
        b"n,,auth=Bearer good.token~of/alice_+==\x01\x01",
        b"y,,\x01auth=Bearer good.token~of/alice_+==\x01\x01",
        b"n,,\x01auth=Bearer good token\x01\x01",
        b"\xff\xfe\xfd",
    ],
)
def test_what_has_another_form_is_refused(message: bytes) -> None:
    with pytest.raises(RefusedError) as refused:
        OAuthBearerServer(check).step(message, 0)
    assert refused.value.told is None


def test_a_client_may_not_ask_to_be_somebody_else() -> None:
    def message(name: str) -> bytes:
        return f"n,a={name},\x01auth=bearer good.token~of/alice_+==\x01\x01".encode()

    assert OAuthBearerServer(check).step(message("alice"), 0).found == FOUND
    with pytest.raises(RefusedError, match="authorization id"):
        OAuthBearerServer(check).step(message("root"), 0)


@pytest.mark.parametrize("extension", [("auth", "x"), ("a1", "x"), ("a", ""), ("a", "\x01b=c"), ("", "x")])
def test_extensions_that_would_break_the_message_are_not_sent(extension: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="no extension"):
        OAuthBearerClient("token", [extension])
