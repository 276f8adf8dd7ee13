"""What members take in memory is counted as they come, change and go, and has one bound for all groups."""

from __future__ import annotations

from typing import Any

from group_script import Script

from headrace.broker.errors import ErrorCode
from headrace.broker.groups.memory import MEMBER_SIZE, MembersMemory

REFUSED = ErrorCode.GROUP_MAX_SIZE_REACHED


def wordy(size: int) -> dict[str, Any]:
    """Protocols of that many bytes."""
    return {"protocols": (("range", b"x" * (size - 5)),)}


def joined(script: Script, **overrides: Any) -> Any:
    token = script.join(**overrides)
    script.pass_time(0)
    return script.replies[token]


def test_a_member_is_counted_with_what_it_brought_and_no_more_when_it_left() -> None:
    script = Script()
    member = joined(script, **wordy(500)).member_id
    assert script.memory.size == MEMBER_SIZE + len(member) + 500
    script.sync(member, 1, {member: b"a" * 70})
    assert script.memory.size == MEMBER_SIZE + len(member) + 570
    script.leave(member)
    assert script.memory.size == 0


def test_a_silent_member_is_no_longer_counted() -> None:
    script = Script()
    member = joined(script, **wordy(500)).member_id
    script.sync(member, 1, {member: b""})
    script.pass_time(20_000)
    assert script.memory.size == 0


def test_clients_that_were_told_an_id_are_counted_until_their_session_is_over() -> None:
    script = Script()
    member = joined(script, requires_member_id=True).member_id
    assert script.memory.size == MEMBER_SIZE + len(member)
    script.pass_time(20_000)
    assert script.memory.size == 0


def test_beyond_the_bound_new_members_are_refused_in_every_group() -> None:
    script = Script(memory=MembersMemory(size_max=5000))
    assert joined(script, group_id="a", **wordy(1500)).error is ErrorCode.NONE
    assert joined(script, group_id="b", **wordy(3000)).error is REFUSED
    assert "b" not in script.shard.groups
    assert joined(script, group_id="b", **wordy(1000)).error is ErrorCode.NONE
    assert script.memory.size <= 5000


def test_a_member_may_come_back_with_as_much_but_not_with_more_than_there_is_room_for() -> None:
    script = Script(memory=MembersMemory(size_max=4000))
    member = joined(script, **wordy(2000)).member_id
    assert joined(script, member_id=member, **wordy(2000)).error is ErrorCode.NONE
    assert joined(script, member_id=member, **wordy(9000)).error is REFUSED
    assert joined(script, member_id=member, **wordy(100)).error is ErrorCode.NONE


def test_assignments_beyond_the_bound_are_refused() -> None:
    script = Script(memory=MembersMemory(size_max=4000))
    member = joined(script, **wordy(1000)).member_id
    assert script.replies[script.sync(member, 1, {member: b"a" * 4000})].error is REFUSED
    assert script.replies[script.sync(member, 1, {member: b"a" * 1000})].error is ErrorCode.NONE


def test_two_shards_share_the_bound_and_one_that_is_unloaded_gives_its_part_back() -> None:
    memory = MembersMemory(size_max=4000)
    first, second = Script(memory=memory), Script(memory=memory)
    assert joined(first, **wordy(2000)).error is ErrorCode.NONE
    assert joined(second, **wordy(2000)).error is REFUSED
    first.shard.release()
    assert joined(second, **wordy(2000)).error is ErrorCode.NONE


def test_a_reload_counts_the_same() -> None:
    script = Script()
    member = joined(script, **wordy(500)).member_id
    script.sync(member, 1, {member: b"a" * 70})
    before = script.memory.size
    script.reload()
    assert script.memory.size == before
