"""The error codes of group requests that a quiet group never provokes: fencing, bounds, rebalances, unknown coordinators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pairs import leave_topic, running_pair
from processes import eventually
from sessions import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
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
from test_conformance_groups import await_coordinator, enter, heartbeat, join, offset_commit, sync
from zookeeper_process import ZooKeeperProcess

SUBSCRIPTION = b"\0\1" + b"\0\0\0\1" + b"\0\x0dgroup-offsets" + b"\xff\xff\xff\xff" + b"\0\0\0\0"
PARTS = [{"partition_index": partition} for partition in (0, 1, 9)]


@pytest.fixture(scope="module")
def bounded_pair(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A pair of young brokers with small bounds."""
    bounds = {"group.max.size": "2", "offset.metadata.max.bytes": "10"}
    with running_pair(kafka_jars, zookeeper, tmp_path_factory.mktemp("bounded"), bounds) as both:
        yield both


def test_before_there_is_a_coordinator(bounded_pair: Pair) -> None:
    """Runs first on its pair: nobody has asked for a coordinator yet."""

    def script(session: Session) -> None:
        session.ask(JOIN_GROUP, 5, join(5, "early"))
        session.ask(SYNC_GROUP, 3, sync(3, "early", "m", 1))
        session.ask(HEARTBEAT, 3, heartbeat("early", "m", 1))
        session.ask(LEAVE_GROUP, 2, {"group_id": "early", "member_id": "m"})
        session.ask(LEAVE_GROUP, 3, {"group_id": "early", "members": [{"member_id": "m"}]})
        create_topic(session, "group-offsets")
        session.ask(OFFSET_COMMIT, 7, offset_commit("early", 1))
        for version in (1, 5, 8):
            topics = [{"name": "group-offsets", "partition_indexes": [0]}]
            groups = {"groups": [{"group_id": "early", "topics": topics}]}
            session.ask(
                OFFSET_FETCH, version, groups if version == 8 else {"group_id": "early", "topics": topics}
            )
        session.ask(DESCRIBE_GROUPS, 5, {"groups": ["early"]})
        session.ask(LIST_GROUPS, 4, {})
        session.ask(DELETE_GROUPS, 2, {"groups_names": ["early"]})
        topics = [{"name": "group-offsets", "partitions": PARTS}]
        session.ask(OFFSET_DELETE, 0, {"group_id": "early", "topics": topics})
        session.ask(FIND_COORDINATOR, 2, {"key": "early", "key_type": 0}, note="the first")

    bounded_pair.compare(script)


def test_more_members_than_a_group_may_have(bounded_pair: Pair) -> None:
    def script(session: Session) -> None:
        await_coordinator(session, "full")
        static = [enter(session, 4, "full")]
        member, generation = static[0]["member_id"], static[0]["generation_id"]
        session.ask(SYNC_GROUP, 3, sync(3, "full", member, generation, member))
        others = [session.another(), session.another()]
        second = others[0].ask(JOIN_GROUP, 4, join(4, "full"), note="second")["member_id"]
        others[0].send_only(others[0].frame(JOIN_GROUP, 4, join(4, "full", second)))

        def is_told() -> bool:
            beat = session.look(HEARTBEAT, 3, heartbeat("full", member, generation))
            return bool(beat["error_code"] == 27)

        eventually(is_told, what="a rebalance")
        session.ask(JOIN_GROUP, 4, join(4, "full", member), note="first again")
        others[0].next_answer(JOIN_GROUP, 4, note="second")
        third = others[1].ask(JOIN_GROUP, 4, join(4, "full"), note="third")
        others[1].ask(JOIN_GROUP, 4, join(4, "full", third["member_id"]), note="third with an id")
        for version in (0, 9):
            others[1].ask(JOIN_GROUP, version, join(version, "full"), note="third otherwise")
        for other in others:
            other.close()

    bounded_pair.compare(script)


def test_too_much_to_keep_beside_an_offset(bounded_pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "group-offsets")
        await_coordinator(session, "wordy")
        for size in (9, 10, 11):
            message = offset_commit("wordy", 1, metadata="x" * size)
            session.ask(OFFSET_COMMIT, 7, message, note=f"{size} bytes")

    bounded_pair.compare(script)


def test_too_many_offsets_for_one_record_batch(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "group-many", partitions=40)
        await_coordinator(session, "many")
        parts = [
            {"partition_index": index, "committed_offset": 1, "committed_metadata": "x" * 4000}
            for index in range(40)
        ]
        for count in (2, 40):
            message = {"group_id": "many", "topics": [{"name": "group-many", "partitions": parts[:count]}]}
            session.ask(OFFSET_COMMIT, 2, message, note=f"{count}")

    pair.compare(script)


@pytest.mark.parametrize("version", [3, 4, 5, 9])
def test_requests_without_a_group(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        await_coordinator(session, "x")
        session.ask(JOIN_GROUP, version, join(version, ""))
        session.ask(SYNC_GROUP, min(version, 5), sync(min(version, 5), "", "m", 1))
        session.ask(HEARTBEAT, min(version, 4), heartbeat("", "m", 1))
        leaving = {"group_id": "", "members": [{"member_id": "m"}]}
        session.ask(LEAVE_GROUP, min(version, 5), leaving)
        session.ask(DESCRIBE_GROUPS, min(version, 5), {"groups": [""]})
        session.ask(DELETE_GROUPS, 2, {"groups_names": [""]})
        session.ask(OFFSET_COMMIT, version, offset_commit("", 1, member_id="m", generation=1))
        session.ask(OFFSET_DELETE, 0, {"group_id": "", "topics": []})

    pair.compare(script)


def test_the_protocol_of_kip_848_is_refused(pair: Pair) -> None:
    def script(session: Session) -> None:
        await_coordinator(session, "modern")
        beat: Message = {
            "group_id": "modern",
            "member_id": "",
            "member_epoch": 0,
            "rebalance_timeout_ms": 5000,
        }
        session.ask(CONSUMER_GROUP_HEARTBEAT, 0, beat)
        session.ask(CONSUMER_GROUP_HEARTBEAT, 0, {**beat, "group_id": ""}, note="no group")
        for groups in (["modern", "nobody", ""], []):
            session.ask(CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": groups}, note=f"{len(groups)}")

    pair.compare(script)


def test_partitions_that_are_named_twice(pair: Pair) -> None:
    """Each topic is answered one time, and each partition that the coordinator has looked at."""

    def script(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        await_coordinator(session, "twice")
        named = [{"partition_index": index, "committed_offset": n} for n, index in enumerate((0, 9, 0, 1, 9))]
        topics = [
            {"name": "group-offsets", "partitions": named},
            {"name": "group-nowhere", "partitions": named},
            {"name": "group-offsets", "partitions": named[:1]},
            {"name": "group-offsets", "partitions": []},
            {"name": "group-nobody", "partitions": []},
        ]
        for version in (0, 1, 9):
            session.ask(OFFSET_COMMIT, version, {"group_id": "twice", "topics": topics})
            session.ask(OFFSET_COMMIT, version, {"group_id": "twice", "topics": topics[3:]}, note="of none")
        session.ask(OFFSET_FETCH, 5, {"group_id": "twice", "topics": None})
        indexes = [{"name": "group-offsets", "partition_indexes": [0, 9, 0, 1, 9]}] * 2
        for version in (0, 1):
            session.ask(OFFSET_FETCH, version, {"group_id": "twice", "topics": indexes})
        deleted = [
            {"name": name, "partitions": [{"partition_index": index} for index in (0, 9, 0, 1, 9)]}
            for name in ("group-offsets", "group-nowhere")
        ]
        session.ask(OFFSET_DELETE, 0, {"group_id": "twice", "topics": deleted})

    pair.compare(script)


@pytest.mark.parametrize("version", [6, 7, 9])
def test_a_protocol_without_a_name(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        group = f"nameless-{version}"
        await_coordinator(session, group)
        entered = enter(session, version, group, protocols=[{"name": "", "metadata": b""}])
        member, generation = entered["member_id"], entered["generation_id"]
        for name in (None, ""):
            message = sync(5, group, member, generation, member, protocol_name=name)
            session.ask(SYNC_GROUP, 5, message, note=f"{name}")
        session.ask(DESCRIBE_GROUPS, 5, {"groups": [group]})

    pair.compare(script)


@pytest.mark.parametrize("version", range(5, 10))
def test_a_fenced_static_member(pair: Pair, version: int) -> None:
    group = f"fenced-{version}"
    name = {"group_instance_id": "i-1"}

    def script(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        await_coordinator(session, group)
        old = enter(session, version, group, **name)
        member, generation = old["member_id"], old["generation_id"]
        sync_version = min(version, 5)
        session.ask(SYNC_GROUP, sync_version, sync(sync_version, group, member, generation, member, **name))
        session.ask(JOIN_GROUP, version, join(version, group, **name), note="comes back")
        session.ask(JOIN_GROUP, version, join(version, group, member, **name), note="the old one joins")
        message = sync(sync_version, group, member, generation, **name)
        session.ask(SYNC_GROUP, sync_version, message, note="the old one syncs")
        beat = {**heartbeat(group, member, generation), **name}
        session.ask(HEARTBEAT, 4, beat, note="the old one")
        commit_version = max(version, 7)
        commit = offset_commit(group, 5, member_id=member, generation=generation)
        session.ask(OFFSET_COMMIT, commit_version, {**commit, **name}, note="the old one")
        unknown = {**commit, "group_instance_id": "i-2"}
        session.ask(OFFSET_COMMIT, commit_version, unknown, note="an unknown one")
        members = [
            {"member_id": member, "group_instance_id": "i-1"},
            {"member_id": "", "group_instance_id": "i-9"},
        ]
        session.ask(LEAVE_GROUP, min(version, 5), {"group_id": group, "members": members}, note="the old one")

    pair.compare(script)


def test_requests_of_another_generation_and_during_a_rebalance(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        await_coordinator(session, "turning")
        entered = enter(session, 5, "turning")
        member, generation = entered["member_id"], entered["generation_id"]

        def commit(note: str, generation: int) -> None:
            for version in (2, 7, 9):
                message = offset_commit("turning", 5, member_id=member, generation=generation)
                session.ask(OFFSET_COMMIT, version, message, note=f"{note} {generation}")

        commit("before the assignment", generation)
        commit("before the assignment", generation + 1)
        session.ask(SYNC_GROUP, 3, sync(3, "turning", member, generation, member))
        for each in (generation, generation - 1, generation + 1, 0, -1):
            commit("stable", each)
        other = session.another()
        second = other.ask(JOIN_GROUP, 5, join(5, "turning"), note="second")["member_id"]
        other.send_only(other.frame(JOIN_GROUP, 5, join(5, "turning", second)))

        def is_told() -> bool:
            answer = session.look(HEARTBEAT, 3, heartbeat("turning", member, generation))
            return bool(answer["error_code"] == 27)

        eventually(is_told, what="a rebalance")
        session.ask(HEARTBEAT, 4, heartbeat("turning", member, generation), note="told")
        session.ask(SYNC_GROUP, 5, sync(5, "turning", member, generation), note="must join")
        commit("preparing", generation)
        commit("preparing", generation + 1)
        session.ask(JOIN_GROUP, 5, join(5, "turning", member), note="first again")
        other.next_answer(JOIN_GROUP, 5, note="second")
        session.ask(HEARTBEAT, 4, heartbeat("turning", member, generation + 1), note="completing")
        commit("completing", generation + 1)
        other.close()

    pair.compare(script)


def test_deleting_what_is_in_use(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "group-offsets", partitions=2)
        topics = [
            {"name": "group-offsets", "partitions": PARTS},
            {"name": "group-nowhere", "partitions": PARTS},
        ]
        for group, changes in (
            ("in-use", {"protocols": [{"name": "range", "metadata": SUBSCRIPTION}]}),
            ("in-use-elsewhere", {"protocol_type": "connect"}),
        ):
            await_coordinator(session, group)
            entered = enter(session, 5, group, **changes)
            member, generation = entered["member_id"], entered["generation_id"]
            session.ask(OFFSET_DELETE, 0, {"group_id": group, "topics": topics}, note=f"{group} joining")
            session.ask(SYNC_GROUP, 3, sync(3, group, member, generation, member))
            commit = offset_commit(group, 5, member_id=member, generation=generation)
            session.ask(OFFSET_COMMIT, 7, commit)
            session.ask(OFFSET_DELETE, 0, {"group_id": group, "topics": topics}, note=f"{group} stable")
            session.ask(DELETE_GROUPS, 2, {"groups_names": [group, group, "nobody"]})
            gone: Message = {"group_id": group, "members": [{"member_id": member}]}
            session.ask(LEAVE_GROUP, 3, gone)
            session.ask(OFFSET_DELETE, 0, {"group_id": group, "topics": topics}, note=f"{group} empty")
            session.ask(DELETE_GROUPS, 2, {"groups_names": [group]})

    pair.compare(script)


def test_protocols_that_do_not_go_together(pair: Pair) -> None:
    def script(session: Session) -> None:
        await_coordinator(session, "mixed")
        one = {"protocols": [{"name": "range", "metadata": b""}]}
        entered = enter(session, 5, "mixed", **one)
        member, generation = entered["member_id"], entered["generation_id"]
        session.ask(SYNC_GROUP, 3, sync(3, "mixed", member, generation, member))
        other = session.another()
        for version in (0, 5, 9):
            for changes in (
                {"protocols": [{"name": "sticky", "metadata": b""}]},
                {"protocol_type": "connect", **one},
                {"protocol_type": "connect", "protocols": []},
            ):
                other.ask(JOIN_GROUP, version, join(version, "mixed", **changes), note=str(changes))
        session.ask(
            JOIN_GROUP, 5, join(5, "mixed", member, protocols=[]), note="the member without protocols"
        )
        session.ask(
            JOIN_GROUP, 5, join(5, "mixed", member, protocol_type=""), note="the member without a type"
        )
        other.close()

    pair.compare(script)


@pytest.mark.acceptance
def test_a_coordinator_whose_records_have_too_few_replicas(own_pair: Pair) -> None:
    """The offsets topic wants two replicas in sync, and one of its brokers is gone."""

    def before(session: Session) -> None:
        session.note("topic", create_topic(session, "group-offsets") is not None)

    own_pair.compare(before)
    config = {"min.insync.replicas": "2", "cleanup.policy": "compact"}
    for chroot in ("/kafka", "/headrace"):
        replicas = {partition: [1, 7] for partition in range(5)}
        topic_id = "AAAAAAAAQACAAAAAAAAAAw"
        leave_topic(own_pair.znodes, chroot, "__consumer_offsets", topic_id, replicas, config)
        own_pair.znodes.delete(f"{chroot}/controller")

    def script(session: Session) -> None:
        await_coordinator(session, "few")
        for version in range(2, 10):
            session.ask(OFFSET_COMMIT, version, offset_commit("few", 1))
        for version in (3, 5):
            member = enter(session, version, f"few-{version}")
            message = sync(version, f"few-{version}", member["member_id"], 1, member["member_id"])
            session.ask(SYNC_GROUP, version, message)
        session.ask(OFFSET_FETCH, 5, {"group_id": "few", "topics": None})

    own_pair.compare(script)
