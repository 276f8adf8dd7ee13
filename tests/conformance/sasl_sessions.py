"""A pair of brokers whose clients log in, and what a script does to log in to either."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kafka_oracle import KafkaBroker
from pairs import SETTINGS, chroots
from processes import BrokerProcess, free_port
from sasl_broker import Issuer
from sessions import Message, Pair, Session
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE
from headrace.broker.auth.sasl.clients import client_exchange
from headrace.broker.auth.sasl.credentials import salted_password
from headrace.broker.auth.sasl.exchange import Identity
from headrace.broker.server.access.log_ins import VALIDATORS

HANDSHAKE, AUTHENTICATE, DESCRIBE_CREDENTIALS, ALTER_CREDENTIALS = 17, 36, 50, 51
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret", "admin": "admin-secret"}
SALT, ITERATIONS = b"0123456789abcdef", 4096
SCRAM_CODES = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class SaslPair(NamedTuple):
    """`at` has the address where clients log in by the other one of the same broker."""

    both: Pair
    at: dict[tuple[str, int], tuple[str, int]]
    issuer: Issuer


def settings(issuer: Issuer) -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    listener = "listener.name.sasl_plaintext."
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{listener}plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        f"{listener}scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        f"{listener}scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        f"{listener}scram-sha-512.connections.max.reauth.ms": "3000",
        f"{listener}oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
        f"{listener}oauthbearer.sasl.server.callback.handler.class": VALIDATORS[0],
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{issuer.file}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "delegation.token.secret.key": "a-secret-of-all-brokers",
        # Who comes in plain text, and admin, may do everything; alice and bob what needs no right.
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "connection.failed.authentication.delay.ms": "10",
    }


@contextmanager
def running_sasl_pair(
    jars: Path, zookeeper: ZooKeeperProcess, home: Path, set: Mapping[str, str] | None = None
) -> Iterator[SaslPair]:
    """Both brokers, with a plaintext listener and one where clients log in; their users have SCRAM credentials."""
    issuer = Issuer(home)
    place = zookeeper.under_chroot(home)
    at = {}

    def properties(kind: str) -> tuple[tuple[str, int], dict[str, str]]:
        plain, sasl = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())
        at[plain] = sasl
        listeners = "PLAINTEXT://{}:{},SASL_PLAINTEXT://{}:{}".format(*plain, *sasl)
        own = {"listeners": listeners, "log.dirs": str(home / kind / "logs")}
        return plain, {**SETTINGS, **settings(issuer), **own, **(set or {})}

    with ExitStack() as stack:
        znodes = stack.enter_context(chroots(place))
        address, common = properties("kafka")
        kafka = KafkaBroker(jars, home / "kafka", broker_id=1, zookeeper=f"{place}/kafka", set=common)
        kafka.bootstrap = "{}:{}".format(*address)
        stack.callback(kafka.end)
        _, common = properties("headrace")
        headrace = BrokerProcess(home / "headrace", broker_id=1, zookeeper=f"{place}/headrace", set=common)
        stack.callback(headrace.end)
        kafka.wait_until_serving()
        both = Pair(headrace=headrace, kafka=kafka, znodes=znodes)
        both.wait_for_producer_ids()
        yield SaslPair(both, at, issuer)


def upsertion(name: str, mechanism: int = 1, iterations: int = ITERATIONS, password: str = "") -> Message:
    password = password or PASSWORDS.get(name, "any")
    salted = salted_password(SCRAM_CODES.get(mechanism, "SCRAM-SHA-256"), password, SALT, ITERATIONS)
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": salted,
    }


def authenticate(session: Session, message: bytes, version: int = 2, *, note: str = "") -> Message:
    """Ask, and note what is said of a failure, word by word."""
    answer = session.ask(AUTHENTICATE, version, {"auth_bytes": message}, note=note)
    if answer:
        session.note(f"what is told {note}", answer["error_message"])
    return answer


def log_in(session: Session, identity: Identity, *, version: int = 2, handshake: bool = True) -> Message:
    """The whole exchange as a client does it; the last answer."""
    if handshake:
        session.ask(HANDSHAKE, 1, {"mechanism": identity.mechanism})
    machine = client_exchange(identity, secrets.token_hex(8))
    message = machine.step(b"")
    answer: Message = {}
    while not machine.is_done:
        answer = authenticate(session, message, version)
        if answer.get("error_code", -1) != 0:
            break
        message = machine.step(bytes(answer["auth_bytes"]))
    return answer


def identity_of(mechanism: str, name: str = "alice", password: str = "", **more: Any) -> Identity:
    return Identity(mechanism, name, password or PASSWORDS.get(name, "any"), **more)
