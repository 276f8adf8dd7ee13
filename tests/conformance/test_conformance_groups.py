"""Consumer groups: coordinator, membership, rebalances and offsets, with their errors, step by step."""

from __future__ import annotations

from typing import Any

import pytest
from processes import eventually
from sessions import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    Message,
    Pair,
    Session,
    create_topic,
)

PROTOCOLS = [{"name": "range", "metadata": b"\0\0"}, {"name": "roundrobin", "metadata": b"\0\1"}]


def await_coordinator(session: Session, group: str) -> None:
    """Ask until the offsets topic is there and led."""

    def is_there() -> bool:
        answer = session.look(FIND_COORDINATOR, 2, {"key": group, "key_type": 0})
        if answer["error_code"] != 0:
            return False
        answer = session.look(OFFSET_FETCH, 5, {"group_id": group, "topics": []})
        return bool(answer["error_code"] == 0)

    eventually(is_there, what="a coordinator")


def join(version: int, group: str, member_id: str = "", **changes: Any) -> Message:
    message: Message = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
    }
    if version >= 1:
        message["rebalance_timeout_ms"] = 30_000
    return {**message, **changes}


def enter(session: Session, version: int, group: str, **changes: Any) -> Message:
    """Join, with the second attempt that versions from 4 on ask for."""
    answer = session.ask(JOIN_GROUP, version, join(version, group, **changes))
    if answer["error_code"] == 79:
        answer = session.ask(JOIN_GROUP, version, join(version, group, answer["member_id"], **changes))
    return answer


def sync(
    version: int, group: str, member_id: str, generation: int, *assigned: str, **changes: Any
) -> Message:
    message: Message = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "assignments": [{"member_id": m, "assignment": b"for a member"} for m in assigned],
    }
    if version >= 5:
        message |= {"protocol_type": "consumer", "protocol_name": "range"}
    return {**message, **changes}


def heartbeat(group: str, member_id: str, generation: int) -> Message:
    return {"group_id": group, "generation_id": generation, "member_id": member_id}


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        await_coordinator(session, "find")
        if version >= 4:
            for key_type, keys in ((0, ["find", "other", ""]), (0, []), (7, ["find"])):
                message: Message = {"key_type": key_type, "coordinator_keys": keys}
                session.ask(FIND_COORDINATOR, version, message, note=f"{key_type} {keys}")
        elif version >= 1:
            for key_type, key in ((0, "find"), (0, ""), (7, "find")):
                session.ask(
                    FIND_COORDINATOR, version, {"key": key, "key_type": key_type}, note=f"{key_type} {key}"
                )
        else:
            session.ask(FIND_COORDINATOR, version, {"key": "find"})

    pair.compare(script)


@pytest.mark.parametrize("version", range(10))
def test_a_member_alone(pair: Pair, version: int) -> None:
    group = f"alone-{version}"
    sync_version, heartbeat_version = min(version, 5), min(version, 4)

    def script(session: Session) -> None:
        await_coordinator(session, group)
        entered = enter(session, version, group)
        member, generation = entered["member_id"], entered["generation_id"]
        for generation_ in (generation + 1, generation):
            for member_ in ("nobody", member):
                message = sync(sync_version, group, member_, generation_, member)
                session.ask(SYNC_GROUP, sync_version, message, note=f"{member_ == member} {generation_}")
                message = heartbeat(group, member_, generation_)
                session.ask(HEARTBEAT, heartbeat_version, message, note=f"{member_ == member} {generation_}")
        session.ask(SYNC_GROUP, sync_version, sync(sync_version, group, member, generation), note="again")
        session.ask(JOIN_GROUP, version, join(version, group, "nobody"), note="unknown member")
        session.ask(JOIN_GROUP, version, join(version, ""), note="no group")
        for timeout_ms in (500, 10_000_000, 0, -1):
            message = join(version, group, session_timeout_ms=timeout_ms)
            session.ask(JOIN_GROUP, version, message, note=f"session timeout {timeout_ms}")
        wrong: list[dict[str, Any]] = [
            {"protocol_type": "connect"},
            {"protocol_type": ""},
            {"protocols": []},
            {"protocols": [{"name": "sticky", "metadata": b""}]},
        ]
        for changes in wrong:
            session.ask(JOIN_GROUP, version, join(version, group, **changes), note=str(changes))
        if sync_version == 5:
            for changes in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
                message = sync(5, group, member, generation, **changes)
                session.ask(SYNC_GROUP, 5, message, note=str(changes))
        session.ask(
            HEARTBEAT, heartbeat_version, heartbeat("nothing", member, generation), note="unknown group"
        )
        session.ask(HEARTBEAT, heartbeat_version, heartbeat("", member, generation), note="no group")
        session.ask(JOIN_GROUP, version, join(version, group, member), note="joins again")
        leave(session, min(version, 5), group, member)
        leave(session, min(version, 5), group, member)
        leave(session, min(version, 5), "nothing", member)

    pair.compare(script)


def leave(session: Session, version: int, group: str, member_id: str) -> None:
    message: Message = {"group_id": group}
    if version >= 3:
        message["members"] = [{"member_id": member_id}, {"member_id": "nobody"}]
    else:
        message["member_id"] = member_id
    session.ask(LEAVE_GROUP, version, message)


def test_two_members_rebalance(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        await_coordinator(session, "two")
        first = enter(session, 5, "two")
        one = first["member_id"]
        session.ask(SYNC_GROUP, 3, sync(3, "two", one, first["generation_id"], one))
        other = session.another()
        refused = other.ask(JOIN_GROUP, 5, join(5, "two"), note="second")
        two = refused["member_id"]
        other.send_only(other.frame(JOIN_GROUP, 5, join(5, "two", two)))

        def is_told() -> bool:
            beat = session.look(HEARTBEAT, 3, heartbeat("two", one, first["generation_id"]))
            return bool(beat["error_code"] == 27)

        eventually(is_told, what="a rebalance")
        commit = offset_commit("two", 5, member_id=one, generation=first["generation_id"])
        session.ask(OFFSET_COMMIT, 7, commit, note="while rebalancing")
        entered = session.ask(JOIN_GROUP, 5, join(5, "two", one), note="leader again")
        other.next_answer(JOIN_GROUP, 5, note="second again")
        generation = entered["generation_id"]
        other.send_only(other.frame(SYNC_GROUP, 3, sync(3, "two", two, generation)))
        session.ask(SYNC_GROUP, 3, sync(3, "two", one, generation, one, two), note="leader")
        other.next_answer(SYNC_GROUP, 3, note="second")
        session.ask(DESCRIBE_GROUPS, 5, {"groups": ["two"]}, note="stable")
        leave(other, 3, "two", two)
        eventually(
            lambda: session.look(HEARTBEAT, 3, heartbeat("two", one, generation))["error_code"] == 27,
            what="another rebalance",
        )
        session.ask(JOIN_GROUP, 5, join(5, "two", one), note="alone again")
        other.close()

    pair.compare(script)


def test_static_members(pair: Pair) -> None:
    def script(session: Session) -> None:
        await_coordinator(session, "static")
        entered = enter(session, 5, "static", group_instance_id="i-1")
        member, generation = entered["member_id"], entered["generation_id"]
        session.ask(SYNC_GROUP, 3, sync(3, "static", member, generation, member, group_instance_id="i-1"))
        again = session.ask(JOIN_GROUP, 5, join(5, "static", group_instance_id="i-1"), note="comes back")
        for name, member_id in (("old", member), ("new", again["member_id"])):
            message = {**heartbeat("static", member_id, again["generation_id"]), "group_instance_id": "i-1"}
            session.ask(HEARTBEAT, 3, message, note=name)
        message = {**heartbeat("static", again["member_id"], generation), "group_instance_id": "i-2"}
        session.ask(HEARTBEAT, 3, message, note="unknown instance")
        session.ask(DESCRIBE_GROUPS, 4, {"groups": ["static"]})
        gone = {"group_id": "static", "members": [{"member_id": "", "group_instance_id": "i-1"}]}
        session.ask(LEAVE_GROUP, 4, gone)
        session.ask(LEAVE_GROUP, 4, gone, note="again")

    pair.compare(script)


def offset_commit(
    group: str,
    offset: int,
    *,
    member_id: str = "",
    generation: int = -1,
    metadata: str | None = "m",
) -> Message:
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata}
    unknown = {**part, "partition_index": 9}
    topics = [
        {"name": "group-offsets", "partitions": [part, unknown]},
        {"name": "group-nowhere", "partitions": [part]},
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": topics,
    }


@pytest.mark.parametrize("version", range(1, 10))
def test_committing_and_fetching_offsets(pair: Pair, version: int) -> None:
    group = f"offsets-{version}"

    def fetch(session: Session, fetch_version: int, note: str) -> None:
        names = [
            {"name": "group-offsets", "partition_indexes": [0, 1, 9]},
            {"name": "group-nowhere", "partition_indexes": [0]},
        ]
        for topics in (names, [], None):
            if topics is None and fetch_version < 2:
                continue
            if fetch_version >= 8:
                groups = [{"group_id": group, "topics": topics}, {"group_id": "nothing", "topics": names}]
                message: Message = {"groups": groups}
            else:
                message = {"group_id": group, "topics": topics}
            session.ask(OFFSET_FETCH, fetch_version, message, note=f"{note} {topics and len(topics)}")

    def script(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        await_coordinator(session, group)
        fetch(session, version, "before")
        for offset, metadata in ((5, "m"), (7, None), (0, "é" * 10), (3, "x" * 5000)):
            message = offset_commit(group, offset, metadata=metadata)
            session.ask(OFFSET_COMMIT, version, message, note=f"{offset}")
            fetch(session, version, f"after {offset}")
        for member_id, generation in (("nobody", 3), ("nobody", -1), ("", 3)):
            message = offset_commit(group, 8, member_id=member_id, generation=generation)
            session.ask(OFFSET_COMMIT, version, message, note=f"as {member_id} of {generation}")
        session.ask(OFFSET_COMMIT, version, offset_commit("", 1), note="no group")
        fetch(session, version, "at last")

    pair.compare(script)


@pytest.mark.parametrize("version", range(6))
def test_listing_and_describing_groups(pair: Pair, version: int) -> None:
    group = f"listed-{version}"

    def script(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        await_coordinator(session, group)
        session.ask(OFFSET_COMMIT, 7, offset_commit(f"{group}-empty", 5))
        entered = enter(session, 5, group)
        member, generation = entered["member_id"], entered["generation_id"]
        if version <= 5:
            groups = [group, f"{group}-empty", "nothing", ""]
            session.ask(DESCRIBE_GROUPS, version, {"groups": groups}, note="joined")
            session.ask(SYNC_GROUP, 3, sync(3, group, member, generation, member))
            session.ask(DESCRIBE_GROUPS, version, {"groups": groups}, note="stable")
        filters: list[Message] = [{}]
        if version >= 4:
            filters += [{"states_filter": ["Stable"]}, {"states_filter": ["nonsense"]}]
        if version >= 5:
            filters += [{"types_filter": ["classic"]}, {"types_filter": ["consumer"]}]
        for wanted in filters:
            answer = session.look(LIST_GROUPS, version, wanted, noted=True)
            found = [g for g in answer["groups"] if g["group_id"].startswith(group)]
            found.sort(key=lambda g: g["group_id"])
            session.note(f"list {wanted}", (answer["error_code"], found))

    pair.compare(script)


def test_deleting_groups_and_offsets(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        await_coordinator(session, "doomed")
        session.ask(OFFSET_COMMIT, 7, offset_commit("doomed", 5))
        entered = enter(session, 5, "alive")
        session.ask(SYNC_GROUP, 3, sync(3, "alive", entered["member_id"], entered["generation_id"]))
        session.ask(OFFSET_COMMIT, 7, offset_commit("doomed-too", 5))
        parts = [{"partition_index": 0}, {"partition_index": 1}, {"partition_index": 9}]
        topics = [
            {"name": "group-offsets", "partitions": parts},
            {"name": "group-nowhere", "partitions": parts},
        ]
        for group in ("doomed-too", "nothing", ""):
            session.ask(OFFSET_DELETE, 0, {"group_id": group, "topics": topics}, note=group)
        for version in range(3):
            names = ["doomed", "alive", "nothing", ""]
            session.ask(DELETE_GROUPS, version, {"groups_names": names})

    pair.compare(script)
