"""Other replicas and other leaders, asked for by clients and in ZooKeeper: what is refused, what begins, what znodes say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pairs import leave_topic
from processes import eventually
from sessions import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    Message,
    Pair,
    Session,
    create_topic,
)

ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 43, 45, 46
PREFERRED, UNCLEAN = 0, 1
NOBODY, NOT_CONTROLLER = 7, 41
WISH = "/admin/reassign_partitions"
TOPIC, BROKER = 2, 4
SET = 0
GONE_ID = "AAAAAAAAQACAAAAAAAAANA"
TOPICS = {f"lost-{n}": f"AAAAAAAAQACAAAAAAAAA{end}" for n, end in enumerate(("MA", "MQ", "Mg", "Mw", "NQ"))}
NEVER_UNCLEAN = ("lost-2", "lost-3")
UNCLEAN_KEY = "unclean.leader.election.enable"


def chroot_of(session: Session, pair: Pair) -> str:
    return "/kafka" if session._address == pair.kafka.address else "/headrace"


def stored(pair: Pair, session: Session, path: str) -> Any:
    return json.loads(pair.znodes.get(f"{chroot_of(session, pair)}{path}")[0])


def note_topic(pair: Pair, session: Session, topic: str) -> None:
    """What its znodes say."""
    found = stored(pair, session, f"/brokers/topics/{topic}")
    del found["topic_id"]
    session.note(topic, found)
    state = stored(pair, session, f"/brokers/topics/{topic}/partitions/0/state")
    session.note(f"{topic} state", {key: state[key] for key in ("leader", "leader_epoch", "isr")})


def wanted(*partitions: tuple[str, int, list[int] | None]) -> Message:
    topics: dict[str, list[Message]] = {}
    for name, partition, replicas in partitions:
        topics.setdefault(name, []).append({"partition_index": partition, "replicas": replicas})
    return {"timeout_ms": 5000, "topics": [{"name": n, "partitions": p} for n, p in topics.items()]}


def test_replicas_that_cannot_be(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "moves-bad")
        for replicas in ([1, NOBODY], [NOBODY], [1, 1], [], [-1], [1, -1], [2**31 - 1], None):
            for topic, partition in (("moves-bad", 0), ("moves-bad", 9), ("moves-nowhere", 0), ("", -1)):
                session.ask(ALTER_REASSIGNMENTS, 0, wanted((topic, partition, replicas)), note=str(replicas))
        for topic in ("moves-nowhere", "moves-bad"):
            session.ask(ALTER_REASSIGNMENTS, 0, wanted((topic, 9, [1])))
        session.ask(ALTER_REASSIGNMENTS, 0, wanted(("moves-bad", 0, [NOBODY]), ("moves-bad", 0, None)))
        session.ask(ALTER_REASSIGNMENTS, 0, {"topics": []})
        session.ask(LIST_REASSIGNMENTS, 0, {"topics": None})
        session.ask(LIST_REASSIGNMENTS, 0, {"topics": []})
        named = [{"name": "moves-bad", "partition_indexes": [0, 9]}, {"name": "x", "partition_indexes": []}]
        session.ask(LIST_REASSIGNMENTS, 0, {"topics": named})
        note_topic(pair, session, "moves-bad")
        session.ask(ALTER_REASSIGNMENTS, 0, wanted(("moves-bad", 0, [1])), note="where it is")
        session.ask(LIST_REASSIGNMENTS, 0, {"topics": None})

    pair.compare(script)


def test_a_move_to_a_broker_that_is_away_waits_until_it_is_cancelled(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "moves-away")
        chroot = chroot_of(session, pair)
        wish = [
            {"topic": "moves-away", "partition": 0, "replicas": [1, NOBODY]},
            {"topic": "moves-nowhere", "partition": 0, "replicas": [1]},
        ]
        pair.znodes.create(f"{chroot}{WISH}", json.dumps({"version": 1, "partitions": wish}).encode())

        def is_moving() -> bool:
            return bool(session.look(LIST_REASSIGNMENTS, 0, {"topics": None})["topics"])

        eventually(is_moving, what="the move")
        eventually(lambda: len(stored(pair, session, WISH)["partitions"]) == 1, what="the wish that can be")
        session.note("wish", stored(pair, session, WISH))
        session.ask(LIST_REASSIGNMENTS, 0, {"topics": None})
        note_topic(pair, session, "moves-away")
        growth = {"name": "moves-away", "count": 2, "assignments": None}
        session.ask(CREATE_PARTITIONS, 3, {"topics": [growth], "timeout_ms": 5000, "validate_only": False})
        session.ask(ALTER_REASSIGNMENTS, 0, wanted(("moves-away", 0, None)), note="cancel")
        session.ask(LIST_REASSIGNMENTS, 0, {"topics": None})
        eventually(lambda: pair.znodes.exists(f"{chroot}{WISH}") is None, what="the end of the wish")
        note_topic(pair, session, "moves-away")
        session.ask(ALTER_REASSIGNMENTS, 0, wanted(("moves-away", 0, None)), note="again")

    pair.compare(script)


@pytest.mark.acceptance
def test_leaders_that_are_asked_for(own_pair: Pair) -> None:
    """Partition 0 of each topic had one replica in sync, which is lost."""
    for chroot in ("/kafka", "/headrace"):
        for topic, topic_id in TOPICS.items():
            config = {UNCLEAN_KEY: "false"} if topic in NEVER_UNCLEAN else {}
            replicas, in_sync = {0: [NOBODY, 1], 1: [1]}, {0: [NOBODY], 1: [1]}
            leave_topic(own_pair.znodes, chroot, topic, topic_id, replicas, config, in_sync)
        leave_topic(own_pair.znodes, chroot, "gone", GONE_ID, {0: [NOBODY]})
        own_pair.znodes.delete(f"{chroot}/controller")

    def script(session: Session) -> None:
        for topic in TOPICS:
            await_leaders(session, topic, [-1, 1])
        for version in range(3):
            for election in (PREFERRED, UNCLEAN, 2) if version else (PREFERRED,):
                lost = [] if election == UNCLEAN else [("lost-1", [0])]
                elect(session, version, election, [("lost-0", [1, 9]), ("nowhere", [0]), *lost])
        elect(session, 1, UNCLEAN, [("lost-0", [0, 1])])
        elect(session, 2, UNCLEAN, [("lost-0", [0])])
        allow_unclean(session, TOPIC, "lost-1")
        await_leaders(session, "lost-1", [1, 1])
        allow_unclean(session, BROKER, "")
        await_leaders(session, "lost-4", [1, 1])
        elect(session, 2, UNCLEAN, [("lost-2", [0])])
        elect(session, 2, UNCLEAN, None)
        elect(session, 2, PREFERRED, None)
        for topic in TOPICS:
            state = stored(own_pair, session, f"/brokers/topics/{topic}/partitions/0/state")
            # Kafka's epochs of a partition that nobody can lead grow whenever it looks at it.
            del state["leader_epoch"], state["controller_epoch"]
            session.note(topic, state)

    own_pair.compare(script)

    def ending(session: Session) -> None:
        elect(session, 2, UNCLEAN, [("gone", [0])])
        session.look(DELETE_TOPICS, 3, {"topic_names": ["gone"], "timeout_ms": 0})
        elect(session, 2, UNCLEAN, [("gone", [0])])
        session.ask(ALTER_REASSIGNMENTS, 0, wanted(("gone", 0, [1])))
        came = {"name": "came", "num_partitions": 1, "replication_factor": 1}
        session.look(CREATE_TOPICS, 5, {"topics": [came], "timeout_ms": 0})
        session.ask(ALTER_REASSIGNMENTS, 0, wanted(("came", 0, [1])))
        depose(own_pair, session)
        elect(session, 2, PREFERRED, [("lost-0", [0])])
        session.ask(ALTER_REASSIGNMENTS, 0, wanted(("lost-0", 0, [1])))
        session.ask(LIST_REASSIGNMENTS, 0, {"topics": None})

    own_pair.compare(ending)


def allow_unclean(session: Session, resource_type: int, name: str) -> None:
    """Let replicas that are not in sync lead a topic, or those of all brokers that say nothing else."""
    config = {"name": UNCLEAN_KEY, "config_operation": SET, "value": "true"}
    wish = {"resource_type": resource_type, "resource_name": name, "configs": [config]}
    session.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [wish], "validate_only": False})


def await_leaders(session: Session, topic: str, leaders: list[int]) -> None:
    message = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}

    def are_there() -> bool:
        found = session.look(METADATA, 5, message)["topics"][0]["partitions"]
        partitions = sorted(found, key=lambda partition: int(partition["partition_index"]))
        return [partition["leader_id"] for partition in partitions] == leaders

    eventually(are_there, what=f"{leaders} of {topic}")


def elect(
    session: Session,
    version: int,
    election: int,
    topics: list[tuple[str, list[int]]] | None,
) -> None:
    """Ask for leaders and note what becomes of each partition."""
    named = None if topics is None else [{"topic": t, "partitions": p} for t, p in topics]
    message: Message = {"topic_partitions": named, "timeout_ms": 10_000}
    if version:
        message["election_type"] = election
    answer = session.look(ELECT_LEADERS, version, message, noted=True)
    codes = {
        f"{topic['topic']}-{result['partition_id']}": result["error_code"]
        for topic in answer["replica_election_results"]
        for result in topic["partition_result"]
    }
    session.note(f"election {election} in version {version}", (answer.get("error_code"), codes))


def depose(pair: Pair, session: Session) -> None:
    """Somebody who does nothing is controller, and the broker knows."""
    path = f"{chroot_of(session, pair)}/controller"
    change = pair.znodes.transaction()
    change.delete(path)
    office = {**json.loads(pair.znodes.get(path)[0]), "brokerid": NOBODY}
    change.create(path, json.dumps(office).encode(), ephemeral=True)
    change.commit()
    growth = {"name": "lost-0", "count": 9, "assignments": None}
    wish: Message = {"topics": [growth], "timeout_ms": 1000, "validate_only": True}

    def has_resigned() -> bool:
        answer = session.look(CREATE_PARTITIONS, 3, wish)
        return bool(answer["results"][0]["error_code"] == NOT_CONTROLLER)

    eventually(has_resigned, what="a cluster without a controller")
