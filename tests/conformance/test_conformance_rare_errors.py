"""Error codes of states that pass, brought about by hand: metadata that is ahead of a log, a reassignment under way."""

from __future__ import annotations

import json
from uuid import UUID

from sessions import (
    CREATE_PARTITIONS,
    DESCRIBE_CLUSTER,
    FETCH,
    METADATA,
    Message,
    Pair,
    Session,
    create_topic,
)

UPDATE_METADATA = 6
OTHER_ID = UUID("11111111-2222-4333-8444-555555555555")
NOBODY = 7


def test_metadata_that_names_another_topic_than_the_log_belongs_to(pair: Pair) -> None:
    """A topic was made anew: the controller's word of it was heard, that who leads it is still to come."""

    def script(session: Session) -> None:
        create_topic(session, "rare-ahead")
        chroot = "/kafka" if session._address == pair.kafka.address else "/headrace"
        epoch = int(pair.znodes.get(f"{chroot}/controller_epoch")[0])
        session.ask(UPDATE_METADATA, 8, word_of("rare-ahead", OTHER_ID, epoch, session._address))
        for version in (13, 17):
            for topic_id in (OTHER_ID, UUID(int=9)):
                parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
                message = {"max_wait_ms": 0, "topics": [{"topic_id": topic_id, "partitions": parts}]}
                session.ask(FETCH, version, message, note=f"{topic_id}")
        parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
        session.ask(FETCH, 12, {"max_wait_ms": 0, "topics": [{"topic": "rare-ahead", "partitions": parts}]})

    pair.compare(script)


def test_a_controller_that_is_not_among_the_brokers(pair: Pair) -> None:
    """Somebody deleted its registration, or it lacks the listener that the client came by."""

    def script(session: Session) -> None:
        chroot = "/kafka" if session._address == pair.kafka.address else "/headrace"
        epoch = int(pair.znodes.get(f"{chroot}/controller_epoch")[0])
        word = {**word_of("any", OTHER_ID, epoch, session._address), "topic_states": []}
        session.ask(UPDATE_METADATA, 8, {**word, "controller_id": NOBODY})
        for version in range(2):
            session.ask(DESCRIBE_CLUSTER, version)
        for version in (1, 5, 12):
            session.ask(METADATA, version, {"topics": []})
        session.ask(UPDATE_METADATA, 8, word)

    pair.compare(script)


def word_of(topic: str, topic_id: UUID, epoch: int, address: tuple[str, int]) -> Message:
    """What a controller says of a topic with one partition."""
    host, port = address
    partition = {
        "partition_index": 0,
        "controller_epoch": epoch,
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1],
        "zk_version": 0,
        "replicas": [1],
        "offline_replicas": [],
    }
    endpoint = {"host": host, "port": port, "listener": "PLAINTEXT", "security_protocol": 0}
    return {
        "controller_id": 1,
        "controller_epoch": epoch,
        "broker_epoch": -1,
        "topic_states": [{"topic_name": topic, "topic_id": topic_id, "partition_states": [partition]}],
        "live_brokers": [{"id": 1, "endpoints": [endpoint], "rack": None}],
    }


def test_no_partitions_are_added_while_others_move(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "rare-moving")
        chroot = "/kafka" if session._address == pair.kafka.address else "/headrace"
        path = f"{chroot}/brokers/topics/rare-moving"
        topic = json.loads(pair.znodes.get(path)[0])
        moving = {**topic, "partitions": {"0": [1, NOBODY]}, "adding_replicas": {"0": [NOBODY]}}
        pair.znodes.set(path, json.dumps(moving).encode())
        for version in range(4):
            for validate_only in (False, True):
                wish = {"name": "rare-moving", "count": 2, "assignments": None}
                message = {"topics": [wish], "timeout_ms": 5000, "validate_only": validate_only}
                session.ask(CREATE_PARTITIONS, version, message)
        pair.znodes.set(path, json.dumps(topic).encode())
        session.ask(CREATE_PARTITIONS, 3, message, note="it has ended")

    pair.compare(script)
