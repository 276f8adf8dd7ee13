"""Two brokers: users and delegation tokens that one is asked for are known to the other, over a restart, too."""

from __future__ import annotations

import re
import secrets
import time
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.request import urlopen

import confluent_kafka
import pytest
from commands import headrace
from confluent_kafka.admin import AdminClient, NewTopic
from processes import eventually
from raw_client import METADATA, RawClient
from sasl_broker import PASSWORD, USER, SaslBroker
from tls_kit import authority
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.sasl.exchange import Identity
from headrace.broker.wire.client.login import LoginError, log_in

SESSION_MS = 1500
CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TOKEN = 38, 39, 40, 41


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess
) -> Iterator[tuple[SaslBroker, SaslBroker]]:
    home = tmp_path_factory.mktemp("sasl-cluster")
    place = zookeeper.under_chroot(home)
    quick = {
        "delegation.token.expiry.check.interval.ms": "200",
        "listener.name.sasl_ssl.plain.connections.max.reauth.ms": str(SESSION_MS),
    }
    # Clients meet both, and trust one.
    signer = authority()
    first, second = (SaslBroker(home / str(n), place, quick, broker_id=n, signer=signer) for n in (1, 2))
    yield first, second
    first.process.end()
    second.process.end()


def logged_in(broker: SaslBroker, identity: Identity) -> RawClient:
    """A client that is known; raises LoginError."""
    client = RawClient(broker.address("SASL_PLAINTEXT"))
    steps = log_in(identity, secrets.token_hex(8))
    try:
        api, version, message = next(steps)
        while True:
            api, version, message = steps.send(client.ask(api.key, version, message))
    except StopIteration:
        return client
    except LoginError:
        client.socket.close()
        raise


def is_known(broker: SaslBroker, identity: Identity) -> bool:
    try:
        client = logged_in(broker, identity)
    except LoginError:
        return False
    # Who shows a token that has expired and is not removed yet has a session that is over, as in Kafka.
    is_served = client.ask_or_none(METADATA, 1, {"topics": []}) is not None
    client.socket.close()
    return is_served


def is_unknown(broker: SaslBroker, identity: Identity) -> bool:
    return not is_known(broker, identity)


def has_no_tokens(client: RawClient) -> bool:
    tokens: list[object] = client.ask(DESCRIBE_TOKEN, 2, {"owners": None})["tokens"]
    return not tokens


def made_token(broker: SaslBroker, lifetime_ms: int = -1) -> tuple[RawClient, Identity, bytes]:
    client = logged_in(broker, Identity("PLAIN", USER, PASSWORD))
    made: dict[str, Any] = client.ask(CREATE_TOKEN, 2, {"renewers": [], "max_lifetime_ms": lifetime_ms})
    mac = bytes(made["hmac"])
    return client, Identity("SCRAM-SHA-512", made["token_id"], b64encode(mac).decode(), is_token=True), mac


def test_a_user_that_one_broker_is_asked_for_logs_in_at_both(brokers: tuple[SaslBroker, SaslBroker]) -> None:
    at = ("--bootstrap", brokers[1].bootstrap("PLAINTEXT"))
    assert headrace("users", "add", "dora", *at, stdin="dora-secret\n").returncode == 0
    identity = Identity("SCRAM-SHA-256", "dora", "dora-secret")
    for broker in brokers:
        eventually(partial(is_known, broker, identity), what="a new user", timeout_s=5)
    assert headrace("users", "remove", "dora", *at).returncode == 0
    for broker in brokers:
        eventually(partial(is_unknown, broker, identity), what="a user's end", timeout_s=5)


def test_a_token_that_one_broker_made_logs_in_at_both(brokers: tuple[SaslBroker, SaslBroker]) -> None:
    client, identity, mac = made_token(brokers[0])
    for broker in brokers:
        eventually(partial(is_known, broker, identity), what="a new token", timeout_s=5)
    brokers[1].process.stop()
    brokers[1].process.start()
    eventually(partial(is_known, brokers[1], identity), what="the token after a restart", timeout_s=10)
    ended = client.ask(EXPIRE_TOKEN, 2, {"hmac": mac, "expiry_time_period_ms": -1})
    assert ended["error_code"] == 0
    for broker in brokers:
        eventually(partial(is_unknown, broker, identity), what="a token's end", timeout_s=5)
    client.socket.close()


def test_a_token_ends_by_itself_and_so_does_a_session_by_it(brokers: tuple[SaslBroker, SaslBroker]) -> None:
    client, identity, _ = made_token(brokers[0], 1500)
    by_token = logged_in(brokers[0], identity)
    assert by_token.ask(METADATA, 1, {"topics": []})["brokers"]
    for broker in brokers:
        eventually(partial(is_unknown, broker, identity), what="a token's end", timeout_s=5)
    # Nobody logs in by an expired token; it is listed until the controller's next look removes it, as in Kafka.
    eventually(partial(has_no_tokens, client), what="a token's removal", timeout_s=10)
    assert by_token.ask_or_none(METADATA, 1, {"topics": []}) is None
    client.socket.close()
    by_token.socket.close()


def test_a_real_client_renews_its_sessions_and_loses_nothing(brokers: tuple[SaslBroker, SaslBroker]) -> None:
    broker = brokers[0]
    errors: list[Any] = []
    settings = broker.librdkafka("SASL_SSL", "PLAIN", error_cb=errors.append)
    # The broker whose metrics are looked at is the one that is published to.
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("renewed", 1, replica_assignment=[[1]])])["renewed"].result(20)
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True})
    delivered: list[Any] = []
    end = time.monotonic() + 3 * SESSION_MS / 1000
    while time.monotonic() < end:
        producer.produce("renewed", b"value", on_delivery=lambda error, _: delivered.append(error))
        producer.poll(0.05)
    assert producer.flush(20) == 0
    assert errors == []
    assert set(delivered) == {None}
    with urlopen(f"http://{broker.metrics_address}/metrics") as answer:
        metrics = answer.read().decode()
    renewed = re.search(
        r'headrace_reauthentications_total\{listener="SASL_SSL",mechanism="PLAIN",result="successful"\} (\S+)',
        metrics,
    )
    assert renewed is not None
    assert float(renewed[1]) >= 2
    assert 'headrace_expired_connections_killed_total{listener="SASL_SSL"} 0.0' in metrics
