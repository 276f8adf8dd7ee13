"""Random access control lists of users who log in: each of them has the same rights with either kind of broker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from access_rules import allow, topic_is_there
from random_rules import TOPICS, ask_for_rights, filters_of, random_rules
from sasl_sessions import PASSWORDS, SaslPair, identity_of, log_in, running_sasl_pair
from sessions import DELETE_ACLS, Session, create_topic
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.acls import Permission

pytestmark = pytest.mark.long
USERS = ("alice", "bob")
# One rule in four is for a user that there is not, or of another kind of principal.
PRINCIPALS = ("User:alice", "User:alice", "User:bob", "User:bob", "User:*", "User:carol", "Group:alice")
HOSTS = dict.fromkeys((Permission.ALLOW, Permission.DENY), ("*", "*", "127.0.0.1", "127.0.0.3"))


@pytest.fixture(scope="module")
def pair(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SaslPair]:
    """Whoever comes in plain text may do everything."""
    with running_sasl_pair(kafka_jars, zookeeper, tmp_path_factory.mktemp("sasl-acls")) as both:
        both.both.wait_for_coordinator()
        yield both


def ask_as(session: Session, address: tuple[str, int], user: str) -> None:
    client = session.another(address)
    log_in(client, identity_of("PLAIN", user))
    ask_for_rights(client)
    client.close()


@pytest.mark.parametrize("seed", range(6))
def test_random_lists_give_users_the_same_rights(pair: SaslPair, seed: int) -> None:
    assert set(USERS) <= set(PASSWORDS)

    def script(session: Session) -> None:
        for name in TOPICS:
            create_topic(session, name)
            topic_is_there(session, name)
        chooser = random.Random(seed)
        for _ in range(10):
            rules = random_rules(chooser, PRINCIPALS, HOSTS)
            allow(session, rules)
            for user in USERS:
                ask_as(session, pair.at[session._address], user)
            session.ask(DELETE_ACLS, 3, {"filters": filters_of(rules)})

    pair.both.compare(script)
