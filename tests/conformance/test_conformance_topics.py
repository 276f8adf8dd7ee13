"""Creating, growing, configuring and deleting topics: the same answers, and the same znodes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from processes import eventually
from sessions import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    NOT_HAD,
    Message,
    Pair,
    Session,
    create_topic,
)

TOPIC, BROKER = 2, 4


def new(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> Message:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **more}


def assignment(*replicas: list[int]) -> list[Message]:
    return [{"partition_index": n, "broker_ids": ids} for n, ids in enumerate(replicas)]


@pytest.mark.parametrize("version", range(8))
def test_create_topics(pair: Pair, version: int) -> None:
    prefix = f"create-{version}"

    def script(session: Session) -> None:
        config = [
            {"name": "retention.ms", "value": "1000"},
            {"name": "cleanup.policy", "value": "compact,delete"},
        ]
        wishes = {
            "plain": new(f"{prefix}-plain", 3),
            "configured": new(f"{prefix}-configured", configs=config),
            "assigned": new(f"{prefix}-assigned", -1, -1, assignments=assignment([1], [1])),
            "no partitions": new(f"{prefix}-a1", 0),
            "too few partitions": new(f"{prefix}-a2", -2),
            "factor 0": new(f"{prefix}-a3", 1, 0),
            "factor 2": new(f"{prefix}-a4", 1, 2),
            "assigned and counted": new(f"{prefix}-a5", 1, 1, assignments=assignment([1])),
            "assigned twice": new(f"{prefix}-a7", -1, -1, assignments=assignment([1, 1])),
            "assigned with a gap": new(
                f"{prefix}-a8", -1, -1, assignments=[{"partition_index": 3, "broker_ids": [1]}]
            ),
            "illegal name": new("not/legal"),
            "empty name": new(""),
            "dots": new(".."),
            "too long a name": new("x" * 250),
            "unknown config": new(f"{prefix}-a9", configs=[{"name": "no.such.config", "value": "1"}]),
            "bad config": new(f"{prefix}-a10", configs=[{"name": "retention.ms", "value": "soon"}]),
            "config below its minimum": new(
                f"{prefix}-a11", configs=[{"name": "segment.bytes", "value": "1"}]
            ),
            "null config": new(f"{prefix}-a12", configs=[{"name": "retention.ms", "value": None}]),
            "exists": new(f"{prefix}-plain"),
            "prohibited": new("__cluster_metadata"),
            "collides": new(f"{prefix}_plain.x".replace("-", "_")),
        }
        if version >= 4:
            wishes["defaults"] = new(f"{prefix}-defaults", -1, -1)
        for note, wish in wishes.items():
            ask(session, version, note, {"topics": [wish], "timeout_ms": 10_000})
        if version >= 1:
            wishes["fresh"] = new(f"{prefix}-fresh", configs=config)
            for note in ("fresh", "plain", "illegal name", "factor 2"):
                message = {"topics": [wishes[note]], "timeout_ms": 10_000, "validate_only": True}
                ask(session, version, f"only checked: {note}", message)
        twice = {"topics": [new(f"{prefix}-t"), new(f"{prefix}-t"), new(f"{prefix}-u")], "timeout_ms": 10_000}
        ask(session, version, "twice in one request", twice)
        metadata = new("__cluster_metadata")
        prohibited = {"topics": [metadata, metadata, new(f"{prefix}-v")], "timeout_ms": 10_000}
        ask(session, version, "prohibited twice", prohibited)

    pair.compare(script)


def ask(session: Session, version: int, note: str, message: Message) -> None:
    answer = session.look(CREATE_TOPICS, version, message, noted=True)
    for topic in answer["topics"]:
        topic["configs"] = [c for c in topic["configs"] if c["name"] not in NOT_HAD]
    session.note(f"CreateTopics v{version} {note}", session.comparable(answer))


@pytest.mark.parametrize("version", range(7))
def test_delete_topics(pair: Pair, version: int) -> None:
    prefix = f"delete-{version}"

    def script(session: Session) -> None:
        names = [f"{prefix}-a", f"{prefix}-b"]
        ids = [create_topic(session, name) for name in names]
        asked = [names[0], "delete-nowhere", "not/legal"]
        if version >= 6:
            topics: list[Message] = [{"name": name} for name in asked] + [{"name": None, "topic_id": ids[1]}]
            message: Message = {"topics": topics, "timeout_ms": 10_000}
        else:
            message = {"topic_names": asked, "timeout_ms": 10_000}
        session.ask(DELETE_TOPICS, version, message)

        def is_gone() -> bool:
            answer = session.look(
                METADATA, 4, {"topics": [{"name": names[0]}], "allow_auto_topic_creation": False}
            )
            return bool(answer["topics"][0]["error_code"] == 3)

        eventually(is_gone, what="the end of a topic")

    pair.compare(script)


@pytest.mark.parametrize("version", range(4))
def test_create_partitions(pair: Pair, version: int) -> None:
    name = f"grow-{version}"

    def script(session: Session) -> None:
        create_topic(session, name)
        for count, assigned in (
            (0, None),
            (1, None),
            (3, None),
            (4, [[1], [1]]),
            (4, [[7]]),
            (4, [[1]]),
            (-1, None),
        ):
            wish: Message = {"name": name, "count": count, "assignments": None}
            if assigned is not None:
                wish["assignments"] = [{"broker_ids": ids} for ids in assigned]
            for validate_only in (True, False):
                message = {"topics": [wish], "timeout_ms": 10_000, "validate_only": validate_only}
                session.ask(CREATE_PARTITIONS, version, message, note=f"{count} {assigned} {validate_only}")
        nowhere = {"name": "grow-nowhere", "count": 3, "assignments": None}
        session.ask(
            CREATE_PARTITIONS, version, {"topics": [nowhere], "timeout_ms": 1000, "validate_only": False}
        )

    pair.compare(script)


@pytest.mark.parametrize("version", range(5))
def test_describe_configs_of_a_topic(pair: Pair, version: int) -> None:
    name = f"configs-{version}"

    def script(session: Session) -> None:
        create_topic(session, name, configs={"retention.ms": "1000", "segment.bytes": "2000000"})
        for keys in (None, ["retention.ms", "no.such.key"], []):
            resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": keys}
            message: Message = {"resources": [resource]}
            if version >= 1:
                message["include_synonyms"] = True
            answer = session.look(DESCRIBE_CONFIGS, version, message, noted=True)
            session.note(f"keys {keys}", session.comparable(described(answer)))
        for kind, other in (
            (TOPIC, "configs-nowhere"),
            (TOPIC, "not/legal"),
            (BROKER, "77"),
            (BROKER, "x"),
            (9, "x"),
        ):
            resource = {"resource_type": kind, "resource_name": other, "configuration_keys": None}
            session.ask(DESCRIBE_CONFIGS, version, {"resources": [resource]}, note=f"{kind} {other}")

    pair.compare(script)


def described(answer: Message) -> Message:
    for result in answer["results"]:
        result["configs"] = [c for c in result["configs"] if c["name"] not in NOT_HAD]
        for config in result["configs"]:
            own = config["name"] in {"retention.ms", "segment.bytes"}
            # In version 0 Kafka calls no value of a topic a default.
            config.pop("is_default", None)
            config["synonyms"] = config.get("synonyms", []) if own else []
    return answer


def test_altering_a_topics_configuration(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "alter")
        for note, operation, key, value in (
            ("set", 0, "retention.ms", "5000"),
            ("bad value", 0, "retention.ms", "soon"),
            ("unknown", 0, "no.such.key", "1"),
            ("append", 2, "cleanup.policy", "compact"),
            ("subtract", 3, "cleanup.policy", "delete"),
            ("append to no list", 2, "retention.ms", "1"),
            ("delete", 1, "retention.ms", None),
            ("null", 0, "retention.ms", None),
        ):
            change = {"name": key, "config_operation": operation, "value": value}
            resource = {"resource_type": TOPIC, "resource_name": "alter", "configs": [change]}
            session.ask(
                INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}, note=note
            )
            wanted = {"resource_type": TOPIC, "resource_name": "alter", "configuration_keys": [key]}
            eventually_same = session.look(DESCRIBE_CONFIGS, 4, {"resources": [wanted]})
            session.note(f"{note}: error", eventually_same["results"][0]["error_code"])

    pair.compare(script)


def test_settings_without_effect_are_checked_kept_and_described(pair: Pair) -> None:
    keys = (
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "message.format.version",
        "message.timestamp.difference.max.ms",
    )

    def script(session: Session) -> None:
        create_topic(session, "inert", configs={keys[2]: "2.0", keys[3]: "55"})
        for note, operation, key, value in (
            ("replicas", 0, keys[0], "0:1,1:1"),
            ("all replicas", 0, keys[1], "*"),
            ("more replicas", 2, keys[0], "2:1"),
            ("fewer replicas", 3, keys[0], "0:1"),
            ("no replicas", 0, keys[1], "abc"),
            ("half a replica", 0, keys[1], "0"),
            ("another version", 0, keys[2], "0.10.2-IV0"),
            ("no version", 0, keys[2], "soon"),
            ("another difference", 0, keys[3], "66"),
            ("no difference", 0, keys[3], "-1"),
            ("the default version", 1, keys[2], None),
        ):
            change = {"name": key, "config_operation": operation, "value": value}
            resource: Message = {"resource_type": TOPIC, "resource_name": "inert", "configs": [change]}
            session.ask(
                INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}, note=note
            )
            wanted = {"resource_type": TOPIC, "resource_name": "inert", "configuration_keys": list(keys)}
            session.ask(DESCRIBE_CONFIGS, 4, {"resources": [wanted], "include_synonyms": True}, note=note)

    pair.compare(script)


def shape(value: Any) -> Any:
    """A znode's JSON with its values replaced by their types."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


def test_the_znodes_have_the_same_shape(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "znodes", partitions=2, configs={"retention.ms": "1000"})

    for broker in ((pair.kafka.address), (pair.headrace.addresses[0])):
        session = Session(broker)
        script(session)
        session.close()
    paths = [
        "/brokers/ids/1",
        "/brokers/topics/znodes",
        "/brokers/topics/znodes/partitions/0/state",
        "/config/topics/znodes",
        "/controller",
        "/controller_epoch",
        "/cluster/id",
        "/latest_producer_id_block",
        "/feature",
    ]
    zookeeper = pair.znodes
    for path in paths:
        theirs = json.loads(zookeeper.get(f"/kafka{path}")[0])
        ours = json.loads(zookeeper.get(f"/headrace{path}")[0])
        assert shape(ours) == shape(theirs), path
        if isinstance(theirs, dict):
            assert list(ours) == list(theirs), path
        if path in ("/brokers/topics/znodes/partitions/0/state", "/config/topics/znodes"):
            assert ours == theirs, path
    for path in ("/brokers", "/config", "/admin", ""):
        theirs = set(zookeeper.get_children(f"/kafka{path}"))
        assert theirs - set(zookeeper.get_children(f"/headrace{path}")) <= NOT_MADE, path


# Znodes of what headrace does not have: log directory events and delegation tokens.
NOT_MADE = {"log_dir_event_notification", "consumers", "isr_change_notification", "delegation_token"}
