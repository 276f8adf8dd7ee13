"""A request of each kind, as a client sends it that may do this and not that: topics it may use in several ways, groups, ids.

What is asked for changes nothing where it is refused, and nothing that a later request would see where it is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID

from random_runs import fitting
from sessions import Message, Session, batch

from headrace.broker.handlers.table import HANDLERS
from headrace.broker.wire.api import APIS

OPEN, SHUT, MISSING = "k-open", "k-shut", "k-missing"
"""Of the topics of which a client may have some rights: one that it has them of, one that it has not, one that is not there."""
TOPICS = (OPEN, SHUT, MISSING)
GROUPS = ("k-open", "k-shut")
PRODUCER_ID = 424_242
TIME_MS = 5000
FETCH, LAST_FETCH_BY_NAME = 1, 12


def of_topics(name: str, **partition: object) -> list[Message]:
    """A partition of each of the topics, as `topics` names them."""
    return [{name: topic, "partitions": [dict(partition)]} for topic in TOPICS]


def fetch(replica: int = -1) -> Message:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10_000, "current_leader_epoch": -1}
    message: Message = {
        "replica_id": replica,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 10_000,
        "session_epoch": -1,
        "topics": of_topics("topic", **wanted),
    }
    if replica >= 0:
        message["replica_state"] = {"replica_id": replica, "replica_epoch": -1}
    return message


def of_clients(note: str) -> Iterator[tuple[int, Message, str]]:
    """(key, message, what is odd about it) of what clients read and write; a topic that may be made is called after `note`."""
    data = [
        {"name": topic, "partition_data": [{"index": 0, "records": bytes(batch(b"x"))}]} for topic in TOPICS
    ]
    yield 0, {"acks": 1, "timeout_ms": 5000, "topic_data": data}, "all"
    yield 0, {"acks": 1, "timeout_ms": 5000, "topic_data": data[1:2]}, "one"
    transactional = bytes(
        batch(b"x", producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0, transactional=True)
    )
    inside = [{"name": SHUT, "partition_data": [{"index": 0, "records": transactional}]}]
    yield (
        0,
        {"acks": -1, "timeout_ms": 5000, "topic_data": inside, "transactional_id": "k-shut"},
        "transaction",
    )
    yield 1, fetch(), "consumer"
    times = of_topics("name", partition_index=0, timestamp=-1, max_num_offsets=1, current_leader_epoch=-1)
    yield 2, {"replica_id": -1, "topics": times}, ""
    names = [{"name": topic} for topic in TOPICS]
    made = [*names[:2], {"name": f"k-made-{re.sub('[^a-z]', '-', note)}"}]
    for creates in (False, True):
        rights = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
        yield (
            3,
            {"topics": made if creates else names, "allow_auto_topic_creation": creates, **rights},
            f"creates: {creates}",
        )
    yield 3, {"topics": None, "allow_auto_topic_creation": True}, "all"
    epochs = of_topics("topic", partition=0, current_leader_epoch=-1, leader_epoch=0)
    yield 23, {"replica_id": -2, "topics": epochs}, ""
    yield 60, {"include_cluster_authorized_operations": True, "endpoint_type": 1}, ""
    yield 61, {"topics": [{"name": topic, "partition_indexes": [0]} for topic in TOPICS]}, ""


def of_groups(note: str) -> Iterator[tuple[int, Message, str]]:
    """The same of groups."""
    for group in GROUPS:
        commits = of_topics("name", partition_index=0, committed_offset=3, committed_metadata="")
        who = {"group_id": group, "member_id": "", "generation_id_or_member_epoch": -1}
        yield 8, {**who, "topics": commits}, group
        indexes = [{"name": topic, "partition_indexes": [0]} for topic in TOPICS]
        for topics in (indexes, None):
            groups = [{"group_id": each, "topics": topics} for each in GROUPS]
            yield (
                9,
                {"group_id": group, "topics": topics, "groups": groups},
                f"{group}, all: {topics is None}",
            )
        for kind in (0, 1, 2):
            yield 10, {"key": group, "key_type": kind, "coordinator_keys": list(GROUPS)}, f"{group} {kind}"
        member = {"group_id": group, "member_id": "nobody", "generation_id": 1}
        times = {"session_timeout_ms": 6000, "rebalance_timeout_ms": 6000}
        protocols = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
        yield 11, {**member, **times, **protocols}, group
        yield 12, member, group
        yield 13, {**member, "members": [{"member_id": "nobody"}]}, group
        yield 14, {**member, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}, group
        deleted = of_topics("name", partition_index=0)
        yield 47, {"group_id": group, "topics": deleted}, group
        yield 69, {"group_ids": [group]}, group
        yield 68, {"group_id": group, "member_id": "m", "member_epoch": 0}, group
    yield 15, {"groups": list(GROUPS), "include_authorized_operations": True}, ""
    yield 16, {}, ""
    yield 42, {"groups_names": ["k-open", "k-shut", "other"]}, ""


def of_transactions(note: str) -> Iterator[tuple[int, Message, str]]:
    """The same of transactions."""
    yield 22, {"transactional_id": None, "transaction_timeout_ms": 1000}, "idempotent"
    yield 22, {"transactional_id": "k-shut", "transaction_timeout_ms": 0}, "transactional"
    topics = [{"name": topic, "partitions": [0]} for topic in (*TOPICS, "__consumer_offsets")]
    who = {"transactional_id": "k-shut", "producer_id": PRODUCER_ID, "producer_epoch": 0}
    single = {
        "v3_and_below_transactional_id": "k-shut",
        "v3_and_below_producer_id": PRODUCER_ID,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": topics,
    }
    yield 24, {**single, "transactions": [{**who, "verify_only": True, "topics": topics}]}, ""
    yield 25, {**who, "group_id": "k-shut"}, ""
    yield 26, {**who, "committed": True}, ""
    commits = of_topics("name", partition_index=0, committed_offset=3, committed_metadata="")
    yield 28, {**who, "group_id": "k-shut", "topics": commits}, ""
    yield 65, {"transactional_ids": ["k-open", "k-shut"]}, ""
    yield 66, {}, ""


def of_administrators(note: str) -> Iterator[tuple[int, Message, str]]:
    """The same of those who change a cluster: nothing that is asked for could be done, or it is only looked at."""
    wanted = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": []}
        for name in ("k-new", "other-new", OPEN)
    ]
    yield 19, {"topics": wanted, "timeout_ms": TIME_MS, "validate_only": True}, "looked at"
    again = [{"name": "k-twice", "num_partitions": 1, "replication_factor": 1}] * 2
    yield 19, {"topics": again, "timeout_ms": TIME_MS, "validate_only": True}, "twice"
    missing = [{"name": "k-missing"}, {"name": "other-missing"}]
    yield (
        20,
        {"topics": missing, "topic_names": ["k-missing", "other-missing"], "timeout_ms": TIME_MS},
        "",
    )
    yield 21, {"topics": of_topics("name", partition_index=0, offset=0), "timeout_ms": TIME_MS}, ""
    resources = [
        *(
            {"resource_type": 2, "resource_name": topic, "configuration_keys": ["retention.ms"]}
            for topic in TOPICS
        ),
        {"resource_type": 4, "resource_name": "1", "configuration_keys": ["log.retention.ms"]},
        {"resource_type": 8, "resource_name": "1", "configuration_keys": ["none"]},
    ]
    yield 32, {"resources": resources}, ""
    kinds = [*((2, topic) for topic in TOPICS), (4, "1")]
    configs = [{"name": "retention.ms", "value": "-1"}]
    altered = [{"resource_type": kind, "resource_name": name, "configs": []} for kind, name in kinds]
    yield 33, {"resources": altered, "validate_only": True}, ""
    altered = [{"resource_type": 2, "resource_name": topic, "configs": configs} for topic in TOPICS]
    altered += [{"resource_type": kind, "resource_name": "1", "configs": []} for kind in (4, 8)]
    yield 44, {"resources": altered, "validate_only": True}, ""
    directory = {"path": "/nowhere", "topics": [{"name": OPEN, "partitions": [0]}]}
    yield 34, {"dirs": [directory]}, ""
    yield 35, {"topics": [{"topic": MISSING, "partitions": [0]}]}, ""
    grown = [{"name": topic, "count": 1, "assignments": None} for topic in (*TOPICS, "twice", "twice")]
    yield 37, {"topics": grown, "timeout_ms": TIME_MS, "validate_only": True}, ""
    yield 43, {"election_type": 0, "topic_partitions": [{"topic": MISSING, "partitions": [0]}]}, "some"
    yield 45, {"topics": [{"name": MISSING, "partitions": [{"partition_index": 0, "replicas": None}]}]}, ""
    yield 46, {"topics": [{"name": MISSING, "partition_indexes": [0]}]}, ""
    yield 48, {"components": [], "strict": False}, ""
    entity = [{"entity_type": "client-id", "entity_name": "k"}]
    quotas = [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]
    yield 49, {"entries": [{"entity": entity, "ops": quotas}], "validate_only": True}, ""
    yield 57, {"feature_updates": [{"feature": "f", "max_version_level": 0}]}, ""


def of_brokers(note: str) -> Iterator[tuple[int, Message, str]]:
    """The same of what brokers ask each other, from a controller of long ago."""
    old = {"controller_id": 7, "controller_epoch": 0, "broker_epoch": -1}
    yield 1, fetch(replica=7), "follower"
    for replicas, odd in ((replicas_of_controller(), "of partitions"), ({"topic_states": []}, "")):
        yield 4, {**old, **replicas, "live_leaders": []}, odd
    yield 5, {**old, **stopped_replicas()}, "of partitions"
    yield 5, {**old, "topic_states": []}, ""
    yield 6, {**old, "topic_states": [], "live_brokers": []}, ""
    yield 7, {"broker_id": 1, "broker_epoch": 3}, ""
    markers = {
        "producer_id": PRODUCER_ID,
        "producer_epoch": 0,
        "transaction_result": True,
        "coordinator_epoch": 0,
    }
    topics = [{"name": topic, "partition_indexes": [0]} for topic in (MISSING, "other")]
    yield 27, {"markers": [{**markers, "topics": topics}]}, ""
    yield 56, {"broker_id": 7, "broker_epoch": 3, "topics": []}, ""
    yield 67, {"broker_id": 7, "broker_epoch": 3}, ""


def replicas_of_controller() -> Message:
    """Partitions of topics that are nowhere, as LeaderAndIsr names them in all its versions."""
    state = {
        "partition_index": 0,
        "controller_epoch": 0,
        "leader": 7,
        "leader_epoch": 0,
        "isr": [7],
        "partition_epoch": 0,
        "replicas": [7],
        "adding_replicas": [],
        "removing_replicas": [],
        "is_new": False,
        "leader_recovery_state": 0,
    }
    states = [state, {**state, "partition_index": 1}]
    return {
        "topic_states": [
            {"topic_name": topic, "topic_id": UUID(int=number), "partition_states": states}
            for number, topic in enumerate((MISSING, "other"), start=1)
        ],
        "ungrouped_partition_states": [
            {**each, "topic_name": topic} for topic in (MISSING, "other") for each in states
        ],
    }


def stopped_replicas() -> Message:
    """One of them, as StopReplica names it in all its versions."""
    state = {"partition_index": 0, "leader_epoch": 0, "delete_partition": False}
    return {
        "delete_partitions": False,
        "topic_states": [{"topic_name": MISSING, "partition_states": [state]}],
        "topics": [{"name": MISSING, "partition_indexes": [0]}],
        "ungrouped_partitions": [{"topic_name": MISSING, "partition_index": 0}],
    }


def without_configs(answer: Message) -> Message:
    topics = [{**topic, "configs": bool(topic.get("configs"))} for topic in answer["topics"]]
    return {**answer, "topics": topics}


def without_directories(answer: Message) -> Message:
    return {**answer, "results": [{"error_code": each["error_code"]} for each in answer["results"]]}


NOT_ALIKE = {19: without_configs, 35: without_directories}
"""Answers of which a part is the broker's own: Kafka has more configurations, and a place of its own on the disk."""


def ask_everything(session: Session, note: str, *, versions: bool = False) -> None:
    """All of it in its last version, or in all."""
    for kind in (of_clients, of_groups, of_transactions, of_administrators, of_brokers):
        for key, message, odd in kind(note):
            first, last = HANDLERS[key].version_min, HANDLERS[key].version_max
            last = min(last, LAST_FETCH_BY_NAME) if key == FETCH else last
            for version in range(first if versions else last, last + 1):
                sent = fitting(APIS[key].request, version, message)
                if key in NOT_ALIKE:
                    answer = session.look(key, version, sent, noted=True)
                    session.note(f"{key} v{version} {note} {odd}", session.comparable(NOT_ALIKE[key](answer)))
                else:
                    session.ask(key, version, sent, note=f"{note} {odd}")
