"""SCRAM's machines, with the example of RFC 7677 and with what nobody should send."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

import pytest

from headrace.broker.auth.sasl.credentials import (
    ITERATIONS_MIN,
    ScramCredential,
    client_key,
    credential_for,
    keyed,
    salted_password,
)
from headrace.broker.auth.sasl.exchange import SCRAM_SHA_256, SCRAM_SHA_512, Authenticated, RefusedError
from headrace.broker.auth.sasl.scram import CLIENT_ITERATIONS_MAX, Known, ScramClient, ScramServer

SALT = bytes.fromhex("5b6d99689d12358eeca04b141236fa81")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
CLIENT_FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p={PROOF}".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
CLIENT_FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()


def server(
    mechanism: str = SCRAM_SHA_256,
    name: str = "user",
    password: str = "pencil",
    iterations: int = 4096,
    *,
    token: str = "",
) -> ScramServer:
    known = Known(credential_for(mechanism, password, SALT, iterations), Authenticated(token or name))

    def lookup(asked: str, is_token: bool) -> Known | None:
        return known if asked == name and is_token == bool(token) else None

    return ScramServer(mechanism, lookup, SERVER_NONCE)


def test_the_example_of_the_rfc_holds_on_both_sides() -> None:
    there, here = server(), ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE)
    assert here.step(b"") == CLIENT_FIRST
    assert there.step(CLIENT_FIRST, 0).answer == SERVER_FIRST
    assert here.step(SERVER_FIRST) == CLIENT_FINAL
    last = there.step(CLIENT_FINAL, 0)
    assert (last.answer, last.found) == (SERVER_FINAL, Authenticated("user"))
    assert not here.is_done
    assert here.step(SERVER_FINAL) == b""
    assert here.is_done


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
@pytest.mark.parametrize("name", ["alice", "a=b,c", "=3D", "=2C,="])
def test_names_with_signs_log_in(mechanism: str, name: str) -> None:
    there = server(mechanism, name, "pass,word=é")
    here = ScramClient(mechanism, name, "pass,word=é", "abc")
    last = there.step(here.step(there.step(here.step(b""), 0).answer), 0)
    here.step(last.answer)
    assert (last.found, here.is_done) == (Authenticated(name), True)


def test_a_delegation_token_is_looked_up_among_tokens_only() -> None:
    here = ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE, is_token=True)
    first = here.step(b"")
    assert first.endswith(b",tokenauth=true")
    with pytest.raises(RefusedError, match="tokenId"):
        server().step(first, 0)
    there = server(token="owner")
    assert there.step(here.step(there.step(first, 0).answer), 0).found == Authenticated("owner")


@pytest.mark.parametrize(
    "message",
    [
        CLIENT_FINAL.replace(b"hNlF$k0", b"hNlF$k1"),
        CLIENT_FINAL.replace(SERVER_NONCE.encode(), b""),
        CLIENT_FINAL.replace(b"k0,p=", b"k0x,p="),
        CLIENT_FINAL.replace(b"dHzb", b"dHzc"),
        CLIENT_FINAL.replace(PROOF.encode(), b"dHzb"),
        CLIENT_FINAL[:-1],
        CLIENT_FINAL[:20],
        CLIENT_FIRST,
        b"",
        b"\xff" * 40,
    ],
)
def test_a_final_message_that_proves_nothing_is_refused(message: bytes) -> None:
    there = server()
    there.step(CLIENT_FIRST, 0)
    with pytest.raises(RefusedError) as refused:
        there.step(message, 0)
    assert refused.value.told is None


def final_with(nonce: str) -> bytes:
    """The final message with this nonce, and a proof that is right for it."""
    without_proof = f"c=biws,r={nonce}"
    signed = f"{CLIENT_FIRST[3:].decode()},{SERVER_FIRST.decode()},{without_proof}".encode()
    key = client_key(SCRAM_SHA_256, salted_password(SCRAM_SHA_256, "pencil", SALT, 4096))
    signature = keyed(SCRAM_SHA_256, sha256(key).digest(), signed)
    proof = b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    return f"{without_proof},p={proof}".encode()


@pytest.mark.parametrize(
    "nonce",
    [
        SERVER_NONCE,
        CLIENT_NONCE,
        "k0",
        f"{CLIENT_NONCE}{SERVER_NONCE}x",
        f"{CLIENT_NONCE}x",
        f"x{CLIENT_NONCE}{SERVER_NONCE}",
    ],
)
def test_a_nonce_has_to_be_the_servers_whole_one_even_where_the_proof_is_right(nonce: str) -> None:
    """CVE-2024-56128: who knows the password makes a proof for any nonce, of an exchange before, too."""
    there = server()
    there.step(CLIENT_FIRST, 0)
    with pytest.raises(RefusedError, match="nonce"):
        there.step(final_with(nonce), 0)


def test_the_clients_part_may_stand_before_the_whole_nonce_once_more() -> None:
    """So librdkafka before 2.6.1 sends it, which Debian 12 has."""
    there = server()
    there.step(CLIENT_FIRST, 0)
    found = there.step(final_with(CLIENT_NONCE + CLIENT_NONCE + SERVER_NONCE), 0).found
    assert found == Authenticated("user")


@pytest.mark.parametrize(
    "message",
    [
        CLIENT_FIRST[:-21],
        b"",
        b"n,,n=,r=abc",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=a b",
        "n,,n=üser,r=abc".encode(),
    ],
)
def test_a_first_message_of_another_form_is_refused(message: bytes) -> None:
    with pytest.raises(RefusedError, match="first client"):
        server().step(message, 0)


def test_a_client_may_not_ask_to_be_somebody_else() -> None:
    assert server().step(b"n,a=user,n=user,r=abc", 0).answer
    with pytest.raises(RefusedError, match="different from username") as refused:
        server().step(b"n,a=root,n=user,r=abc", 0)
    assert refused.value.told is not None


def test_unknown_users_and_weak_credentials_are_refused_and_nobody_is_told_why() -> None:
    for there in (server(name="other"), server(iterations=ITERATIONS_MIN - 1)):
        with pytest.raises(RefusedError) as refused:
            there.step(CLIENT_FIRST, 0)
        assert refused.value.told is None


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (SERVER_FIRST.replace(b"r=rO", b"r=rP"), "nonce"),
        (f"r={CLIENT_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(), "nonce"),
        (SERVER_FIRST.replace(b"4096", b"1"), "iterations"),
        (SERVER_FIRST.replace(b"4096", str(CLIENT_ITERATIONS_MAX + 1).encode()), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"9" * 400), "format"),
        (SERVER_FIRST[:30], "format"),
    ],
)
def test_a_client_leaves_a_server_that_answers_something_else(challenge: bytes, reason: str) -> None:
    here = ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE)
    here.step(b"")
    with pytest.raises(RefusedError, match=reason):
        here.step(challenge)


@pytest.mark.parametrize("last", [b"e=other-error", SERVER_FINAL.replace(b"6rri", b"6rrj"), b"", b"v="])
def test_a_client_takes_no_server_that_does_not_know_the_password(last: bytes) -> None:
    here = ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE)
    here.step(b"")
    here.step(SERVER_FIRST)
    with pytest.raises(RefusedError):
        here.step(last)
    assert not here.is_done


def test_credentials_go_through_their_text_and_show_nothing() -> None:
    credential = credential_for(SCRAM_SHA_512, "secret", SALT, 8192)
    assert ScramCredential.parse(credential.text()) == credential
    assert credential.text().startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert repr(credential) == "ScramCredential(iterations=8192)"
    for text in (
        "",
        "salt=a",
        credential.text().replace("iterations=8192", "iterations=x"),
        credential.text() + ",a=b",
    ):
        with pytest.raises(ValueError, match="stored_key") as refused:
            ScramCredential.parse(text)
        assert "W22" not in str(refused.value)
