"""Logging in, users' credentials and delegation tokens: every version of keys 17, 36, 38-41, 50 and 51, bad input included."""

from __future__ import annotations

import struct
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import eventually
from sasl_sessions import (
    ALTER_CREDENTIALS,
    AUTHENTICATE,
    DESCRIBE_CREDENTIALS,
    HANDSHAKE,
    SaslPair,
    authenticate,
    identity_of,
    log_in,
    running_sasl_pair,
    upsertion,
)
from sessions import API_VERSIONS, METADATA, Message, Session, raw_frame
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.sasl.exchange import Identity
from headrace.broker.wire.client.login import log_in as login_steps

pytestmark = pytest.mark.long
CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TOKEN = 38, 39, 40, 41
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BAD_MESSAGES = {
    "PLAIN": (
        b"",
        b"alice",
        b"\0alice",
        b"\0\0\0",
        b"\0alice\0",
        b"\0alice\0wrong",
        b"\0nobody\0any",
        b"bob\0alice\0alice-secret",
    ),
    "SCRAM-SHA-256": (
        b"",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=nobody,r=abc",
        b"y,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
    ),
    # Without another scheme than Bearer, over which Apache Kafka stumbles and closes the connection.
    "OAUTHBEARER": (b"", b"n,,\x01\x01", b"n,,\x01auth=Bearer\x01\x01", b"n,,\x01auth=Bearer a.b.c\x01"),
}
EVERY_VERSION = {CREATE_TOKEN: 4, RENEW_TOKEN: 3, EXPIRE_TOKEN: 3, DESCRIBE_TOKEN: 4}
LIFETIME_MS, RENEWED_MS = 60_000, 30_000


@pytest.fixture(scope="module")
def pair(
    kafka_jars: Any, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SaslPair]:
    with running_sasl_pair(kafka_jars, zookeeper, tmp_path_factory.mktemp("sasl")) as both:
        both.both.compare(give_credentials)
        for address in both.at.values():
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                eventually(partial(is_known, address, mechanism), what="credentials")
        yield both


def give_credentials(session: Session) -> None:
    for mechanism in (1, 2):
        upsertions = [upsertion(name, mechanism) for name in ("alice", "bob")]
        session.ask(ALTER_CREDENTIALS, 0, {"deletions": [], "upsertions": upsertions})


def is_known(address: tuple[str, int], mechanism: str) -> bool:
    session = Session(address)
    known = log_in(session, identity_of(mechanism, "bob")).get("error_code") == 0
    session.close()
    return known


def ask_for_versions(session: Session, version: int) -> None:
    """Which keys each broker has is compared elsewhere."""
    message = {"client_software_name": "a", "client_software_version": "1"} if version >= 3 else {}
    answer = session.look(API_VERSIONS, version, message, noted=True)
    session.note("versions", answer["error_code"])


def compare(pair: SaslPair, script: Callable[[Session], None]) -> None:
    """Run it where clients log in."""

    def inside(session: Session) -> None:
        client = session.another(pair.at[session._address])
        script(client)
        client.close()

    pair.both.compare(inside)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("version", range(3))
def test_every_version_logs_in_and_is_refused(pair: SaslPair, mechanism: str, version: int) -> None:
    def script(session: Session) -> None:
        ask_for_versions(session, 3)
        log_in(session, identity_of(mechanism), version=version)
        session.ask(METADATA, 1, {"topics": []})
        for identity in (
            identity_of(mechanism, password="wrong"),
            identity_of(mechanism, "nobody"),
            identity_of(mechanism, "a=b,c"),
        ):
            other = session.another()
            log_in(other, identity, version=version)
            other.ask(METADATA, 1, {"topics": []}, note="after a failure")
            other.close()

    compare(pair, script)


def test_bearer_tokens(pair: SaslPair) -> None:
    issuer = pair.issuer
    tokens = {
        "good": issuer.token(),
        "expired": issuer.token(iat=int(time.time()) - 400, exp=int(time.time()) - 300),
        "for others": issuer.token(aud="others"),
        "of nobody": issuer.token(sub=" "),
        "unsigned": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSIsImF1ZCI6ImthZmthIiwiaWF0IjoxLCJleHAiOjQxMDI0NDQ4MDB9.",
        "changed": issuer.token()[:-4] + "AAAA",
    }

    def script(session: Session) -> None:
        for note, token in tokens.items():
            client = session.another()
            client.ask(HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
            message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
            answer = client.look(AUTHENTICATE, 2, {"auth_bytes": message}, noted=True)
            client.note(f"{note} token", (answer["error_code"], bytes(answer["auth_bytes"])))
            client.note(f"{note} token has a session", answer["session_lifetime_ms"] > 3_500_000)
            if answer["auth_bytes"]:
                authenticate(client, b"\x01")
            client.ask(METADATA, 1, {"topics": []})
            client.close()

    compare(pair, script)


@pytest.mark.parametrize("mechanism", BAD_MESSAGES)
def test_bad_messages(pair: SaslPair, mechanism: str) -> None:
    def script(session: Session) -> None:
        for message in BAD_MESSAGES[mechanism]:
            client = session.another()
            client.ask(HANDSHAKE, 1, {"mechanism": mechanism})
            authenticate(client, message, note=repr(message))
            client.ask(METADATA, 1, {"topics": []})
            client.close()

    compare(pair, script)


def changed(final: bytes, how: str) -> bytes:
    if how == "cut short":
        return final[:-10]
    if how == "another nonce":
        return final.replace(b",p=", b"x,p=")
    if how == "another proof":
        return final[:-8] + b"AAAAAAA="
    return b"" if how == "nothing" else final + b",x=y"


@pytest.mark.parametrize("how", ["cut short", "another nonce", "another proof", "nothing", "more behind it"])
def test_a_final_message_that_is_changed(pair: SaslPair, how: str) -> None:
    """CVE-2024-56128 among them."""

    def script(session: Session) -> None:
        steps = login_steps(identity_of("SCRAM-SHA-256"), "abcdef")
        _, _, handshake = next(steps)
        _, _, first = steps.send(session.ask(HANDSHAKE, 1, handshake))
        answer = authenticate(session, first["auth_bytes"])
        _, _, final = steps.send(answer)
        authenticate(session, changed(final["auth_bytes"], how))
        session.ask(METADATA, 1, {"topics": []})

    compare(pair, script)


@pytest.mark.parametrize("version", [0, 1])
def test_handshakes(pair: SaslPair, version: int) -> None:
    def script(session: Session) -> None:
        for mechanism in ("GSSAPI", "", "plain"):
            client = session.another()
            client.ask(HANDSHAKE, version, {"mechanism": mechanism})
            client.ask(METADATA, 1, {"topics": []})
            client.close()
        session.ask(HANDSHAKE, version, {"mechanism": "PLAIN"})
        if version:
            authenticate(session, b"\0alice\0alice-secret")
        else:
            session.send_only(raw_frame(b"\0alice\0alice-secret"))
            session.note("raw answer", session._read())
        session.ask(HANDSHAKE, version, {"mechanism": "PLAIN"}, note="once more")
        authenticate(session, b"\0alice\0alice-secret", note="once more")
        session.ask(METADATA, 1, {"topics": []})

    compare(pair, script)


def test_a_raw_message_that_is_wrong_is_not_answered(pair: SaslPair) -> None:
    def script(session: Session) -> None:
        session.ask(HANDSHAKE, 0, {"mechanism": "PLAIN"})
        session.send_frame(raw_frame(b"\0alice\0wrong"), AUTHENTICATE, 0)

    compare(pair, script)


def test_what_comes_before_a_log_in_closes_the_connection(pair: SaslPair) -> None:
    """In the middle of one this goes for what does not begin it: there Apache Kafka answers with an error."""

    def script(session: Session) -> None:
        for key, version in ((METADATA, 1), (0, 9), (AUTHENTICATE, 2), (1, 12), (60, 0)):
            client = session.another()
            header = struct.pack(">hhih", key, version, 7, -1) + b"\0" * 20
            client.send_frame(raw_frame(header), key, version)
            client.close()
        client = session.another()
        ask_for_versions(client, 0)
        client.ask(API_VERSIONS, 0, note="twice")
        client.close()
        software = {"client_software_name": "k", "client_software_version": "1"}
        versions = [(API_VERSIONS, version, software if version >= 3 else {}) for version in range(5)]
        for key, version, message in ((HANDSHAKE, 1, {"mechanism": "PLAIN"}), *versions):
            client = session.another()
            client.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
            client.ask(key, version, message, note="in the middle")
            client.close()
        client = session.another()
        client.send_frame(b"\x7f\xff\xff\xff", API_VERSIONS, 0, note="a frame that is too large")
        client.close()

    compare(pair, script)


def test_keys_of_a_log_in_are_out_of_place_in_plain_text(pair: SaslPair) -> None:
    def script(session: Session) -> None:
        for version in (0, 1):
            session.ask(HANDSHAKE, version, {"mechanism": "PLAIN"})
        for version in range(3):
            authenticate(session, b"\0alice\0alice-secret", version)
        for key, versions in EVERY_VERSION.items():
            for version in range(versions):
                more = no_owner(version) if key == CREATE_TOKEN else {}
                session.ask(key, version, token_message(key, **more))

    pair.both.compare(script)


def test_sessions_end_and_are_renewed(pair: SaslPair) -> None:
    def script(session: Session) -> None:
        log_in(session, identity_of("SCRAM-SHA-512"))
        log_in(session, identity_of("SCRAM-SHA-512"))
        session.ask(HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-512"}, note="too early")
        time.sleep(1.1)
        log_in(session, identity_of("SCRAM-SHA-512"))
        session.ask(METADATA, 1, {"topics": []})
        time.sleep(3.1)
        session.ask(METADATA, 1, {"topics": []}, note="after its end")

    compare(pair, script)


def test_a_renewal_changes_neither_mechanism_nor_principal(pair: SaslPair) -> None:
    def script(session: Session) -> None:
        log_in(session, identity_of("SCRAM-SHA-512"))
        log_in(session, identity_of("SCRAM-SHA-512", "bob"))
        session.ask(METADATA, 1, {"topics": []})
        other = session.another()
        log_in(other, identity_of("SCRAM-SHA-512"))
        other.ask(HANDSHAKE, 1, {"mechanism": "PLAIN"})
        authenticate(other, b"\0alice\0alice-secret")
        other.close()

    compare(pair, script)


def test_credentials_are_described(pair: SaslPair) -> None:
    def script(session: Session) -> None:
        for users in (
            None,
            [],
            ["alice"],
            ["alice", "alice"],
            ["nobody", "alice", ""],
            ["bob", "nobody", "bob"],
        ):
            asked = None if users is None else [{"name": user} for user in users]
            answer = session.ask(DESCRIBE_CREDENTIALS, 0, {"users": asked})
            session.note("texts", sorted((r["user"], r["error_message"]) for r in answer["results"]))

    pair.both.compare(script)


def test_credentials_are_changed_and_taken_away(pair: SaslPair) -> None:
    def alter(session: Session, *wishes: Message) -> None:
        upsertions = [wish for wish in wishes if "salt" in wish]
        deletions = [wish for wish in wishes if "salt" not in wish]
        answer = session.ask(ALTER_CREDENTIALS, 0, {"deletions": deletions, "upsertions": upsertions})
        session.note("texts", sorted((r["user"], r["error_message"] or "") for r in answer["results"]))

    def gone(name: str, mechanism: int = 1) -> Message:
        return {"name": name, "mechanism": mechanism}

    def script(session: Session) -> None:
        alter(session)
        alter(session, upsertion("carol"), upsertion("carol", 2), upsertion("dave", 1, 16384))
        alter(session, upsertion("carol", 1, 8192), gone("carol", 2))
        alter(session, gone("carol", 2), upsertion("carol", 1))
        alter(session, upsertion("carol"), upsertion("carol"))
        alter(session, upsertion("carol"), gone("carol"))
        alter(session, gone("nobody"), gone("", 1), upsertion(""))
        for bad in (upsertion("carol", 0), upsertion("carol", 3), upsertion("carol", 1, 4095)):
            alter(session, bad, upsertion("dave", 2))
        alter(session, upsertion("carol", 1, 16385), gone("eve", 7))
        session.ask(DESCRIBE_CREDENTIALS, 0, {"users": None})
        alter(session, gone("carol"), gone("dave"), gone("dave", 2))
        session.ask(DESCRIBE_CREDENTIALS, 0, {"users": [{"name": "carol"}, {"name": "dave"}]})

    pair.both.compare(script)


def token_message(key: int, hmac: bytes = b"", period_ms: int = -1, **more: Any) -> Message:
    if key == CREATE_TOKEN:
        return {"renewers": [], "max_lifetime_ms": period_ms, **more}
    if key == RENEW_TOKEN:
        return {"hmac": hmac, "renew_period_ms": period_ms}
    if key == EXPIRE_TOKEN:
        return {"hmac": hmac, "expiry_time_period_ms": period_ms}
    return {"owners": None, **more}


def no_owner(version: int) -> Message:
    """What a request for a token says where it may name another owner, and does not."""
    return {"owner_principal_type": None, "owner_principal_name": None} if version >= 3 else {}


def user(name: str, kind: str = "User") -> Message:
    return {"principal_type": kind, "principal_name": name}


def logged_in(session: Session, name: str = "alice") -> Session:
    client = session.another()
    log_in(client, identity_of("PLAIN", name))
    return client


@pytest.mark.parametrize("version", range(4))
def test_tokens_live_and_end(pair: SaslPair, version: int) -> None:
    older = min(version, 2)

    def script(session: Session) -> None:
        alice, bob, admin = (logged_in(session, name) for name in ("alice", "bob", "admin"))
        made = alice.ask(
            CREATE_TOKEN,
            version,
            token_message(CREATE_TOKEN, period_ms=LIFETIME_MS, renewers=[user("bob")], **no_owner(version)),
        )
        hmac = bytes(made["hmac"])
        session.note("lifetime", made["max_timestamp_ms"] - made["issue_timestamp_ms"])
        session.note("expiry", made["expiry_timestamp_ms"] - made["issue_timestamp_ms"])
        for client in (alice, bob, admin):
            client.ask(DESCRIBE_TOKEN, version, token_message(DESCRIBE_TOKEN, owners=[user("alice")]))
        alice.ask(DESCRIBE_TOKEN, version, token_message(DESCRIBE_TOKEN, owners=[]))
        alice.ask(DESCRIBE_TOKEN, version, token_message(DESCRIBE_TOKEN, owners=[user("nobody")]))
        for client in (alice, bob, admin):
            client.ask(RENEW_TOKEN, older, token_message(RENEW_TOKEN, hmac, RENEWED_MS))
            client.ask(RENEW_TOKEN, older, token_message(RENEW_TOKEN, hmac + b"x", RENEWED_MS))
        admin.ask(EXPIRE_TOKEN, older, token_message(EXPIRE_TOKEN, hmac))
        bob.ask(EXPIRE_TOKEN, older, token_message(EXPIRE_TOKEN, hmac, 1))
        time.sleep(0.01)
        alice.ask(RENEW_TOKEN, older, token_message(RENEW_TOKEN, hmac), note="expired")
        alice.ask(EXPIRE_TOKEN, older, token_message(EXPIRE_TOKEN, hmac, 1000), note="expired")
        alice.ask(EXPIRE_TOKEN, older, token_message(EXPIRE_TOKEN, hmac))
        alice.ask(EXPIRE_TOKEN, older, token_message(EXPIRE_TOKEN, hmac), note="gone")
        for client in (alice, bob, admin):
            client.close()

    compare(pair, script)


def test_tokens_for_others_and_odd_renewers(pair: SaslPair) -> None:
    def script(session: Session) -> None:
        alice, admin = logged_in(session), logged_in(session, "admin")
        carol: Message = {"owner_principal_type": "User", "owner_principal_name": "carol"}
        made = admin.ask(CREATE_TOKEN, 3, token_message(CREATE_TOKEN, **carol))
        for client in (alice, admin):
            client.ask(DESCRIBE_TOKEN, 3, token_message(DESCRIBE_TOKEN, owners=[user("carol")]))
            client.ask(EXPIRE_TOKEN, 2, token_message(EXPIRE_TOKEN, bytes(made["hmac"])), note="of carol's")
        for more in (
            {"renewers": [user("x", "Group")]},
            {"renewers": [user("bob"), user("", "User")]},
            {"owner_principal_type": "User", "owner_principal_name": "carol"},
            {"owner_principal_type": "User", "owner_principal_name": ""},
        ):
            made = alice.ask(CREATE_TOKEN, 3, token_message(CREATE_TOKEN, **(no_owner(3) | more)))
            if made["error_code"] == 0:
                alice.ask(DESCRIBE_TOKEN, 3, token_message(DESCRIBE_TOKEN, owners=[user("carol")]))
                alice.ask(EXPIRE_TOKEN, 2, token_message(EXPIRE_TOKEN, bytes(made["hmac"])))
        alice.close()
        admin.close()

    compare(pair, script)


def test_credentials_are_told_and_changed_to_whom_it_is_allowed(pair: SaslPair) -> None:
    def script(session: Session) -> None:
        alice = logged_in(session)
        alice.ask(DESCRIBE_CREDENTIALS, 0, {"users": [{"name": "alice"}]})
        deletions = [{"name": "bob", "mechanism": 1}]
        alice.ask(ALTER_CREDENTIALS, 0, {"deletions": deletions, "upsertions": [upsertion("eve")]})
        alice.close()

    compare(pair, script)


def test_without_a_secret_there_are_no_tokens(
    kafka_jars: Any, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    def script(session: Session) -> None:
        alice = logged_in(session)
        for key in EVERY_VERSION:
            alice.ask(key, 2, token_message(key))
        alice.close()

    nothing = {"delegation.token.secret.key": ""}
    with running_sasl_pair(kafka_jars, zookeeper, tmp_path, nothing) as without:
        compare(without, script)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_in_and_asks_for_no_other(pair: SaslPair, mechanism: str) -> None:
    def script(session: Session) -> None:
        alice = logged_in(session)
        made = alice.look(CREATE_TOKEN, 3, token_message(CREATE_TOKEN, period_ms=LIFETIME_MS, **no_owner(3)))
        password = b64encode(bytes(made["hmac"])).decode()
        for name, secret in (
            (made["token_id"], password),
            (made["token_id"], "wrong"),
            ("no-such-token", password),
        ):
            client = session.another()
            client.ask(HANDSHAKE, 1, {"mechanism": mechanism})
            identity = Identity(mechanism, name, secret, is_token=True)
            answer = last_answer(client, identity)
            client.note("code", answer["error_code"])
            client.note("it has an end", 0 < answer["session_lifetime_ms"] <= LIFETIME_MS)
            if answer["error_code"] == 0:
                client.ask(METADATA, 1, {"topics": []})
                for key, versions in EVERY_VERSION.items():
                    more = no_owner(3) if key == CREATE_TOKEN else {}
                    client.ask(key, versions - 1, token_message(key, **more))
            client.close()
        alice.look(EXPIRE_TOKEN, 2, token_message(EXPIRE_TOKEN, bytes(made["hmac"])))
        client = session.another()
        log_in(client, Identity(mechanism, "gone", password, is_token=True))
        client.close()
        alice.close()

    compare(pair, script)


def last_answer(client: Session, identity: Identity) -> Message:
    """Of a log-in whose handshake is done, without notes: a token's lifetime is never twice the same."""
    steps = login_steps(identity, "abcdef")
    next(steps)
    _, _, message = steps.send({"error_code": 0, "mechanisms": []})
    answer: Message = {}
    while True:
        answer = client.look(AUTHENTICATE, 2, message, noted=True)
        if answer["error_code"]:
            return answer
        try:
            _, _, message = steps.send(answer)
        except StopIteration:
            return answer
