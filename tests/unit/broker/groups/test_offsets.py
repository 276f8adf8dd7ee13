"""Committed offsets: who may commit, metadata, fetching, expiry, deletion."""

from __future__ import annotations

import struct

import pytest
from group_script import Script

from headrace.broker.errors import ErrorCode
from headrace.broker.groups import machine
from headrace.broker.groups.events import (
    CommitOffsets,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    OffsetRetentionDue,
    TopicsDeleted,
)
from headrace.broker.groups.group import topics_of_subscription
from headrace.broker.groups.records import OffsetValue, decode_key
from headrace.broker.wire.partitions import TopicPartition

WEEK_MS = 7 * 24 * 3_600_000


def subscription(*topics: str) -> bytes:
    return struct.pack(">hi", 0, len(topics)) + b"".join(
        struct.pack(">h", len(t)) + t.encode() for t in topics
    )


def expire(script: Script, group_id: str = "g") -> None:
    script.tell(OffsetRetentionDue(group_id=group_id))


def test_a_consumer_without_a_group_commits_and_anybody_fetches() -> None:
    script = Script()
    assert script.commit("", -1, 41) is ErrorCode.NONE
    assert script.commit("", -1, 42, metadata="m") is ErrorCode.NONE
    answer = script.ask(FetchOffsets(group_id="g", partitions=None))
    assert answer.offsets == {TopicPartition("t", 0): FetchedOffset(offset=42, metadata="m")}
    assert script.committed("t", 1) == -1
    script.reload()
    assert script.committed() == 42


def test_a_commit_of_a_generation_that_never_was_does_not_make_a_group() -> None:
    script = Script()
    assert script.commit("m", 1, 1) is ErrorCode.ILLEGAL_GENERATION
    assert script.shard.groups == {}


def test_only_a_member_of_the_current_generation_commits_to_a_live_group() -> None:
    script = Script()
    (member,) = script.stable(instance_id="i")
    assert script.commit(member, 1, 5) is ErrorCode.NONE
    assert script.commit(member, 0, 6) is ErrorCode.ILLEGAL_GENERATION
    assert script.commit("nobody", 1, 6) is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.commit("", -1, 6) is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.commit("other", 1, 6, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert script.committed() == 5


def test_members_commit_while_others_join_but_not_while_assignments_are_awaited() -> None:
    script = Script()
    (first,) = script.stable()
    script.join()
    assert script.commit(first, 1, 7) is ErrorCode.NONE
    token = script.join(first)
    assert script.joined(token).generation == 2
    assert script.commit(first, 2, 8) is ErrorCode.REBALANCE_IN_PROGRESS
    assert script.committed() == 7


@pytest.mark.parametrize(("character", "count_max"), [("x", 4_096), ("\u00e9", 4_096), ("\U0001f600", 2_048)])
def test_metadata_is_as_long_as_java_counts_it(character: str, count_max: int) -> None:
    script = Script()
    assert script.commit("", -1, 1, metadata=character * count_max) is ErrorCode.NONE
    too_long = character * (count_max + 1)
    assert script.commit("", -1, 1, metadata=too_long) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_metadata_has_a_bound_for_each_partition() -> None:
    script = Script()
    small, large = TopicPartition("t", 0), TopicPartition("t", 1)
    offsets = {
        small: OffsetValue(offset=1, metadata="x" * 4_096),
        large: OffsetValue(offset=1, metadata="x" * 4_097),
    }
    answer = script.ask(CommitOffsets(group_id="g", member_id="", generation=-1, offsets=offsets))
    assert answer == {small: ErrorCode.NONE, large: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert (script.committed("t", 0), script.committed("t", 1)) == (1, -1)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_an_offset_that_the_log_refused_is_not_there(error: ErrorCode, answer: ErrorCode) -> None:
    script = Script()
    script.commit("", -1, 1)
    script.append_error = error
    assert script.commit("", -1, 2) is answer
    assert script.committed() == 1


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "GROUPS_COUNT_MAX", 1)
    script = Script()
    assert script.commit("", -1, 1) is ErrorCode.NONE
    assert script.commit("", -1, 1, group_id="h") is ErrorCode.POLICY_VIOLATION
    assert script.joined(script.join(group_id="h")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert script.commit("", -1, 2) is ErrorCode.NONE


def test_offsets_of_a_simple_consumer_expire_a_retention_after_their_commit() -> None:
    script = Script()
    script.commit("", -1, 1)
    script.pass_time(WEEK_MS - 1)
    expire(script)
    assert script.committed() == 1
    script.pass_time(1)
    expire(script)
    assert script.shard.groups == {}
    assert [record.value for record in script.log[1:]] == [None], (
        "generation 0 has no record of its own to delete"
    )
    script.reload()
    assert script.committed() == -1


def test_an_expiry_that_the_commit_set_itself_counts() -> None:
    script = Script()
    value = OffsetValue(offset=1, commit_timestamp_ms=script.now_ms, expire_timestamp_ms=script.now_ms + 100)
    script.commit("", -1, 0, offsets={TopicPartition("t", 0): value})
    script.pass_time(100)
    expire(script)
    assert script.committed() == -1


def test_offsets_of_a_group_expire_a_retention_after_its_last_member_left() -> None:
    script = Script()
    (member,) = script.stable()
    script.commit(member, 1, 1)
    script.pass_time(5_000)
    script.leave(member)
    script.pass_time(WEEK_MS - 1)
    expire(script)
    assert script.committed() == 1
    script.pass_time(1)
    expire(script)
    assert script.shard.groups == {}
    assert [(decode_key(record.key), record.value) for record in script.log[-2:]] == [
        (decode_key(b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"), None),
        (decode_key(b"\x00\x02\x00\x01g"), None),
    ]
    script.reload()
    assert script.shard.groups == {}


def test_offsets_of_topics_that_a_stable_group_no_longer_reads_expire() -> None:
    script = Script()
    (member,) = script.stable(protocols=(("range", subscription("t")),), session_timeout_ms=1_800_000)
    offsets = {
        TopicPartition(topic, 0): OffsetValue(offset=1, commit_timestamp_ms=script.now_ms)
        for topic in ("t", "u")
    }
    script.ask(CommitOffsets(group_id="g", member_id=member, generation=1, offsets=offsets))
    script.now_ms += WEEK_MS
    expire(script)
    assert (script.committed("t"), script.committed("u")) == (1, -1)


def test_nothing_expires_for_a_group_whose_subscription_cannot_be_read() -> None:
    script = Script()
    (member,) = script.stable(protocols=(("range", b"?"),))
    script.commit(member, 1, 1)
    script.now_ms += WEEK_MS
    expire(script)
    assert script.committed() == 1


def test_an_empty_group_without_offsets_ends_at_the_next_check() -> None:
    script = Script()
    (member,) = script.stable()
    script.leave(member)
    expire(script)
    assert script.shard.groups == {}
    assert script.log[-1].value is None


def test_only_an_empty_group_is_deleted_and_all_of_it() -> None:
    script = Script()
    assert script.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    (member,) = script.stable()
    script.commit(member, 1, 1)
    assert script.delete() is ErrorCode.NON_EMPTY_GROUP
    script.leave(member)
    assert script.delete() is ErrorCode.NONE
    assert script.committed() == -1
    assert script.state() == "Dead"
    script.reload()
    assert script.shard.groups == {}


def test_a_group_that_could_not_be_deleted_is_still_there() -> None:
    script = Script()
    script.commit("", -1, 1)
    script.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert script.delete() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert script.committed() == 1


def test_who_was_told_an_id_may_join_a_group_that_could_not_be_deleted() -> None:
    script = Script()
    script.commit("", -1, 1)
    member = script.joined(script.join(requires_member_id=True)).member_id
    script.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    script.delete()
    script.append_error = None
    token = script.join(member, requires_member_id=True)
    script.pass_time(0)
    assert script.joined(token).error is ErrorCode.NONE


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    script = Script()
    (member,) = script.stable(protocols=(("range", subscription("t")),))
    partitions = (TopicPartition("t", 0), TopicPartition("u", 0))
    offsets = {partition: OffsetValue(offset=1) for partition in partitions}
    script.ask(CommitOffsets(group_id="g", member_id=member, generation=1, offsets=offsets))
    answer = script.ask(DeleteOffsets(group_id="g", partitions=partitions))
    assert answer.partitions == {
        partitions[0]: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        partitions[1]: ErrorCode.NONE,
    }
    assert (script.committed("t"), script.committed("u")) == (1, -1)


def test_subscriptions_count_from_the_generation_that_they_are_assigned_in() -> None:
    script = Script()
    (member,) = script.stable(protocols=(("range", subscription("t")),))
    other = script.join(protocols=(("range", subscription("u")),))
    partitions = (TopicPartition("t", 0), TopicPartition("u", 0))

    def refused() -> set[str]:
        errors = script.ask(DeleteOffsets(group_id="g", partitions=partitions)).partitions
        return {p.topic for p, error in errors.items() if error is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}

    assert refused() == {"t"}, "the other one waits"
    token = script.join(member, protocols=(("range", subscription("t")),))
    assert script.joined(token).generation == script.joined(other).generation == 2
    assert refused() == {"t", "u"}
    script.leave(script.joined(other).member_id)
    assert refused() == {"t", "u"}, "the next generation has not begun"


def test_offsets_of_other_kinds_of_groups_are_deleted_only_when_they_are_empty() -> None:
    script = Script()
    partition = TopicPartition("t", 0)
    assert (
        script.ask(DeleteOffsets(group_id="g", partitions=(partition,))).error is ErrorCode.GROUP_ID_NOT_FOUND
    )
    (member,) = script.stable(protocol_type="connect")
    assert script.ask(DeleteOffsets(group_id="g", partitions=(partition,))).error is ErrorCode.NON_EMPTY_GROUP
    script.commit(member, 1, 1)
    script.leave(member)
    assert script.ask(DeleteOffsets(group_id="g", partitions=(partition,))).partitions == {
        partition: ErrorCode.NONE
    }
    assert script.state() == "Dead", "an empty group without offsets is gone"


def test_whoever_was_told_an_id_is_forgotten_with_a_group_that_is_of_no_use() -> None:
    script = Script()
    token = script.join(requires_member_id=True)
    member = script.joined(token).member_id
    assert script.state() == "Empty"
    nothing = DeleteOffsets(group_id="g", partitions=())
    assert script.ask(nothing).error is ErrorCode.NONE
    assert script.state() == "Empty", "nothing was to be deleted"
    script.ask(DeleteOffsets(group_id="g", partitions=(TopicPartition("t", 0),)))
    assert script.state() == "Dead"
    assert script.joined(script.join(member)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.memory.size == 0


def test_a_first_commit_that_is_refused_leaves_an_empty_group_until_somebody_tidies_up() -> None:
    script = Script()
    assert script.commit("", -1, 1, metadata="x" * 5_000) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert script.state() == "Empty"
    expire(script)
    assert script.state() == "Dead"


def test_offsets_of_a_deleted_topic_go() -> None:
    script = Script()
    (member,) = script.stable()
    script.commit(member, 1, 1)
    script.tell(TopicsDeleted(group_id="g", topics=frozenset({"t"})))
    assert script.committed() == -1
    assert script.state() == "Stable"


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (subscription("a", "b"), {"a", "b"}),
        (subscription("a") + b"user data", {"a"}),
        (b"", None),
        (struct.pack(">hih", 0, 1, 9) + b"short", None),
        (struct.pack(">hi", 0, -1), set()),
        (struct.pack(">hih", 0, 1, 2) + b"\xff\xfe", None),
    ],
)
def test_a_subscription_is_read_as_far_as_it_is_one(metadata: bytes, topics: set[str] | None) -> None:
    assert topics_of_subscription(metadata) == topics
