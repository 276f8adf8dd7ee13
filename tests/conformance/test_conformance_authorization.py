"""What each request may do to whom: the same answers, codes and silences for each set of rights, in every version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from access_rules import AUTHORIZER, CLIENT, CLUSTER, allow, forget_rules_of_clients, guard, rule
from asked_rights import OPEN, SHUT, ask_everything
from pairs import running_pair
from processes import eventually
from sessions import (
    DELETE_TOPICS,
    FETCH,
    FIND_COORDINATOR,
    LIST_TRANSACTIONS,
    METADATA,
    PRODUCE,
    Message,
    Pair,
    Session,
    batch,
    create_topic,
    produce_message,
)
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.acls import PatternType, Permission
from headrace.broker.auth.operations import Operation, ResourceType

TOPIC, GROUP, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID


@pytest.fixture(scope="module")
def guarded(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A pair with authorizers, two topics and nobody but the admin who may do anything."""
    with running_pair(kafka_jars, zookeeper, tmp_path_factory.mktemp("rights"), AUTHORIZER) as both:
        both.wait_for_coordinator()
        for address in (both.kafka.address, both.headrace.addresses[0]):
            session = Session(address)
            guard(session)
            for topic in (OPEN, SHUT):
                create_topic(session, topic)
            eventually(partial(has_transactions, session), what="a coordinator of transactions")
            session.close()
        yield both


def has_transactions(session: Session) -> bool:
    """The first to ask for one has its topic made."""
    found = session.look(FIND_COORDINATOR, 2, {"key": "any", "key_type": 1})["error_code"]
    return bool(found == 0 and session.look(LIST_TRANSACTIONS, 1)["error_code"] == 0)


def to_cluster(*operations: Operation) -> list[Message]:
    return [rule(ResourceType.CLUSTER, CLUSTER, operation) for operation in operations]


def to_all(kind: ResourceType, *operations: Operation) -> list[Message]:
    """To all whose names begin with k-, but for what is shut."""
    return [
        each
        for operation in operations
        for each in (
            rule(kind, "k-", operation, pattern=PatternType.PREFIXED),
            rule(kind, "k-shut", operation, permission=Permission.DENY),
        )
    ]


RIGHTS: dict[str, Sequence[Message]] = {
    "nothing": [],
    "topics described": to_all(TOPIC, Operation.DESCRIBE),
    "topics read": to_all(TOPIC, Operation.READ),
    "topics written": to_all(TOPIC, Operation.WRITE),
    "topics described and written": [
        *to_all(TOPIC, Operation.WRITE),
        rule(TOPIC, SHUT, Operation.DESCRIBE),
        rule(TRANSACTIONAL_ID, "*", Operation.WRITE),
    ],
    "nothing written": [rule(TOPIC, "*", Operation.WRITE, permission=Permission.DENY)],
    "topics deleted": to_all(TOPIC, Operation.DELETE),
    "topics altered": to_all(TOPIC, Operation.ALTER),
    "topics made": to_all(TOPIC, Operation.CREATE),
    "topics made and described": to_all(
        TOPIC, Operation.CREATE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS
    ),
    "topics' configurations described": to_all(TOPIC, Operation.DESCRIBE_CONFIGS),
    "topics' configurations altered": to_all(TOPIC, Operation.ALTER_CONFIGS),
    "groups described": to_all(GROUP, Operation.DESCRIBE),
    "groups read": to_all(GROUP, Operation.READ),
    "groups and topics read": [*to_all(GROUP, Operation.READ), *to_all(TOPIC, Operation.READ)],
    "groups deleted": [*to_all(GROUP, Operation.DELETE), *to_all(TOPIC, Operation.READ)],
    "transactions described": to_all(TRANSACTIONAL_ID, Operation.DESCRIBE),
    "transactions written": [rule(TRANSACTIONAL_ID, "*", Operation.WRITE)],
    "transactions written, groups read": [
        rule(TRANSACTIONAL_ID, "*", Operation.WRITE),
        rule(GROUP, "*", Operation.READ),
        *to_all(TOPIC, Operation.READ),
    ],
    "the cluster described": to_cluster(Operation.DESCRIBE),
    "the cluster altered": to_cluster(Operation.ALTER),
    "topics made in the cluster": [*to_cluster(Operation.CREATE), *to_all(TOPIC, Operation.DESCRIBE)],
    "the cluster's configurations described": to_cluster(Operation.DESCRIBE_CONFIGS),
    "the cluster's configurations altered": to_cluster(Operation.ALTER_CONFIGS),
    "a broker": to_cluster(Operation.CLUSTER_ACTION),
    "an idempotent producer": to_cluster(Operation.IDEMPOTENT_WRITE),
}


@pytest.mark.parametrize("rights", ["nothing", "topics described", "transactions written, groups read"])
def test_every_version_refuses_alike(guarded: Pair, rights: str) -> None:
    def script(session: Session) -> None:
        if RIGHTS[rights]:
            allow(session, RIGHTS[rights])
        client = session.another(source=CLIENT)
        ask_everything(client, rights, versions=True)
        client.close()
        forget_rules_of_clients(session)

    guarded.compare(script)


@pytest.mark.parametrize("rights", RIGHTS)
def test_rights(guarded: Pair, rights: str) -> None:
    def script(session: Session) -> None:
        if RIGHTS[rights]:
            allow(session, RIGHTS[rights])
        client = session.another(source=CLIENT)
        ask_everything(client, rights)
        client.close()
        forget_rules_of_clients(session)

    guarded.compare(script)


def fetch_of(*topics: Message) -> Message:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10_000, "current_leader_epoch": -1}
    asked = [{**topic, "partitions": [dict(wanted)]} for topic in topics]
    return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000, "topics": asked}


def by_id(session: Session, name: str) -> Any:
    topics = session.look(METADATA, 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
    return topics["topics"][0]["topic_id"]


def test_topics_by_their_ids(guarded: Pair) -> None:
    def script(session: Session) -> None:
        ids = [by_id(session, OPEN), by_id(session, SHUT), UUID(int=77)]
        client = session.another(source=CLIENT)
        for note, rights in {
            "nothing": [],
            "described": to_all(TOPIC, Operation.DESCRIBE),
            "read": to_all(TOPIC, Operation.READ),
            "deleted": [rule(TOPIC, SHUT, Operation.DELETE)],
        }.items():
            if rights:
                allow(session, rights)
            for topic_id in ids:
                for version in range(13, 18):
                    message = fetch_of({"topic_id": topic_id})
                    client.ask(FETCH, version, {**message, "session_epoch": -1}, note=note)
                named = [{"name": None, "topic_id": topic_id}]
                client.ask(METADATA, 12, {"topics": named, "allow_auto_topic_creation": False}, note=note)
                if note != "deleted" and topic_id != ids[0]:
                    client.ask(DELETE_TOPICS, 6, {"topics": named, "timeout_ms": 5000}, note=note)
        client.close()
        forget_rules_of_clients(session)

    guarded.compare(script)


def test_a_fetch_session_hears_of_rights_that_change(guarded: Pair) -> None:
    def script(session: Session) -> None:
        client = session.another(source=CLIENT)
        state = {"session_id": 0, "session_epoch": 0}

        def fetch(note: str, topics: Sequence[str] = ()) -> None:
            message = {**fetch_of(*({"topic": topic} for topic in topics)), **state}
            answer = client.ask(FETCH, 12, message, note=note)
            state["session_id"] = state["session_id"] or answer["session_id"]
            state["session_epoch"] += 1

        for topic in ("k-first", "k-second"):
            create_topic(session, topic)
        may_read = [rule(TOPIC, topic, Operation.READ) for topic in ("k-first", "k-second")]
        allow(session, may_read)
        fetch("all are told", ("k-first", "k-second"))
        fetch("nothing is new")
        allow(session, [rule(TOPIC, "k-second", Operation.READ, permission=Permission.DENY)])
        fetch("one is denied")
        fetch("and still is")
        session.look(PRODUCE, 9, produce_message("k-second", batch(b"x")))
        fetch("what it has is told to nobody")
        forget_rules_of_clients(session)
        fetch("both are refused")
        allow(session, may_read)
        fetch("both are told again")
        fetch("once more")
        client.close()
        forget_rules_of_clients(session)

    guarded.compare(script)
