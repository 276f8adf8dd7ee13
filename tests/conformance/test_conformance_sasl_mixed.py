"""Users and tokens that one kind of broker makes log in at the other: both share ZooKeeper, and what stands there."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from kafka_oracle import KafkaBroker
from processes import BrokerProcess, eventually, free_port
from sasl_broker import Issuer
from sasl_sessions import ALTER_CREDENTIALS, identity_of, log_in, settings, upsertion
from sessions import METADATA, Session
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.sasl.exchange import Identity

pytestmark = pytest.mark.long
CREATE_TOKEN, EXPIRE_TOKEN = 38, 40
Address = tuple[str, int]


@pytest.fixture(scope="module")
def cluster(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Address]]:
    """Where clients log in at each kind of broker, and `controller`, where none is asked."""
    home = tmp_path_factory.mktemp("mixed")
    common = settings(Issuer(home))
    place = zookeeper.under_chroot(home)
    at: dict[str, Address] = {}

    def listeners(kind: str) -> dict[str, str]:
        plain, at[kind] = free_port(), ("127.0.0.1", free_port())
        at[f"{kind} in plain text"] = ("127.0.0.1", plain)
        return {"listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{at[kind][1]}"}

    with ExitStack() as stack:
        ours = BrokerProcess(
            home / "headrace", broker_id=1, zookeeper=place, set=common | listeners("headrace")
        )
        stack.callback(ours.end)
        kafka = KafkaBroker(
            kafka_jars, home / "kafka", broker_id=2, zookeeper=place, set=common | listeners("kafka")
        )
        kafka.bootstrap = "{}:{}".format(*at["kafka in plain text"])
        stack.callback(kafka.end)
        kafka.wait_until_serving()
        yield at


def logs_in(address: Address, identity: Identity) -> bool:
    session = Session(address)
    try:
        return bool(log_in(session, identity).get("error_code") == 0)
    finally:
        session.close()


def is_refused(address: Address, identity: Identity) -> bool:
    return not logs_in(address, identity)


def test_users_are_known_to_both(cluster: dict[str, Address]) -> None:
    session = Session(cluster["headrace in plain text"])
    assert session.look(METADATA, 1, {"topics": []})["controller_id"] == 1
    answer = session.look(ALTER_CREDENTIALS, 0, {"deletions": [], "upsertions": [upsertion("alice", 2)]})
    assert [result["error_code"] for result in answer["results"]] == [0]
    for kind in ("headrace", "kafka"):
        eventually(partial(logs_in, cluster[kind], identity_of("SCRAM-SHA-512")), what=f"a user at {kind}")
    deletion = {"name": "alice", "mechanism": 2}
    session.look(ALTER_CREDENTIALS, 0, {"deletions": [deletion], "upsertions": []})
    for kind in ("headrace", "kafka"):
        eventually(
            partial(is_refused, cluster[kind], identity_of("SCRAM-SHA-512")), what=f"its end at {kind}"
        )
    session.close()


@pytest.mark.parametrize("maker", ["headrace", "kafka"])
def test_a_token_of_one_logs_in_at_both_and_ends_at_both(cluster: dict[str, Address], maker: str) -> None:
    session = Session(cluster[maker])
    log_in(session, identity_of("PLAIN"))
    message = {"renewers": [], "max_lifetime_ms": 60_000}
    made = session.look(CREATE_TOKEN, 1, message)
    assert made["error_code"] == 0
    mac = bytes(made["hmac"])
    identity = Identity("SCRAM-SHA-256", made["token_id"], b64encode(mac).decode(), is_token=True)
    for kind in ("headrace", "kafka"):
        eventually(partial(logs_in, cluster[kind], identity), what=f"a token at {kind}")
    session.look(EXPIRE_TOKEN, 1, {"hmac": mac, "expiry_time_period_ms": -1})
    for kind in ("headrace", "kafka"):
        eventually(partial(is_refused, cluster[kind], identity), what=f"its end at {kind}")
    session.close()
