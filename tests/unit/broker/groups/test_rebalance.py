"""From joined to stable and back: sync, heartbeats, sessions, leaving, what is stored and what survives a reload."""

from __future__ import annotations

from typing import Any

import pytest
from group_script import Script

from headrace.broker.config.sections import Groups
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import DescribeGroup, SessionExpired, SyncExpired
from headrace.broker.groups.records import decode_group_value


def two_joined(script: Script) -> tuple[str, str]:
    """Two members of generation 1 that have not synced: (leader, follower)."""
    tokens = [script.join(), script.join()]
    script.pass_time(0)
    leader, follower = (script.joined(token).member_id for token in tokens)
    return leader, follower


def test_followers_wait_for_the_leader_and_then_all_get_their_assignment() -> None:
    script = Script()
    leader, follower = two_joined(script)
    waiting = script.sync(follower, 1)
    assert waiting not in script.replies
    token = script.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert (script.synced(token).assignment, script.synced(waiting).assignment) == (b"L", b"F")
    assert (script.synced(token).protocol_type, script.synced(token).protocol_name) == ("consumer", "range")
    assert script.synced(script.sync(follower, 1)).assignment == b"F"


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment() -> None:
    script = Script()
    leader, follower = two_joined(script)
    waiting = script.sync(follower, 1)
    script.sync(leader, 1, {leader: b"L"})
    assert script.synced(waiting).error is ErrorCode.NONE
    assert script.synced(waiting).assignment == b""


def test_a_sync_must_come_from_a_member_of_this_generation_with_its_protocol() -> None:
    script = Script()
    leader, _ = two_joined(script)
    refused = {
        ErrorCode.UNKNOWN_MEMBER_ID: script.sync("nobody", 1),
        ErrorCode.ILLEGAL_GENERATION: script.sync(leader, 2),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: script.sync(leader, 1, protocol_name="sticky"),
    }
    assert {error: script.synced(token).error for error, token in refused.items()} == {e: e for e in refused}
    assert script.synced(script.sync(leader, 1, protocol_type="connect")).error is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert script.state() == "CompletingRebalance"


def test_a_sync_while_members_gather_is_sent_back_to_join() -> None:
    script = Script()
    (first,) = script.stable()
    script.join()
    assert script.synced(script.sync(first, 1)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_new_member_sends_those_that_wait_for_the_leader_back_to_join() -> None:
    script = Script()
    _, follower = two_joined(script)
    waiting = script.sync(follower, 1)
    script.join()
    assert script.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert script.state() == "PreparingRebalance"


def test_members_that_do_not_sync_in_time_are_removed() -> None:
    script = Script()
    leader, follower = two_joined(script)
    waiting = script.sync(follower, 1)
    for _ in range(12):
        assert script.heartbeat(leader, 1) is ErrorCode.NONE
        assert waiting not in script.replies
        script.pass_time(5_000)
    assert script.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert script.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.joined(script.join(follower)).leader == follower


def test_a_follower_that_never_syncs_is_removed_though_the_group_is_stable() -> None:
    script = Script()
    leader, follower = two_joined(script)
    script.sync(leader, 1, {})
    assert script.state() == "Stable"
    for _ in range(12):
        script.heartbeat(leader, 1)
        script.heartbeat(follower, 1)
        script.pass_time(5_000)
    assert script.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_timer_of_an_older_generation_changes_nothing() -> None:
    script = Script()
    leader, _ = two_joined(script)
    script.tell(SyncExpired(group_id="g", generation=0))
    assert script.state() == "CompletingRebalance"
    assert script.heartbeat(leader, 1) is ErrorCode.NONE


def test_a_silent_member_loses_its_session_and_the_rest_rebalance() -> None:
    script = Script()
    first, second = script.stable(2)
    script.pass_time(9_999)
    assert script.heartbeat(first, 1) is ErrorCode.NONE
    script.pass_time(1)
    assert script.heartbeat(second, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_of_strangers_and_of_the_past_are_refused() -> None:
    script = Script()
    assert script.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    (first,) = script.stable()
    assert script.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.heartbeat(first, 0) is ErrorCode.ILLEGAL_GENERATION


def test_a_commit_keeps_a_session_alive() -> None:
    script = Script()
    (first,) = script.stable()
    for offset in range(5):
        script.pass_time(9_000)
        assert script.commit(first, 1, offset) is ErrorCode.NONE
    assert script.heartbeat(first, 1) is ErrorCode.NONE


def test_a_member_with_a_parked_join_needs_no_heartbeats() -> None:
    script = Script()
    first, second = script.stable(2)
    parked = script.join(first)
    for _ in range(5):
        script.pass_time(9_000)
        script.heartbeat(second, 1)
    assert script.state() == "PreparingRebalance"
    script.join(second)
    assert script.joined(parked).error is ErrorCode.NONE


def test_a_new_member_whose_client_vanished_is_not_waited_for_longer_than_five_minutes() -> None:
    script = Script()
    (first,) = script.stable(rebalance_timeout_ms=1_000_000)
    vanished = script.join(rebalance_timeout_ms=1_000_000)
    for _ in range(60):
        assert vanished not in script.replies
        script.heartbeat(first, 1)
        script.pass_time(5_000)
    assert script.joined(vanished).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_that_leaves_leaves_an_empty_group_behind() -> None:
    script = Script()
    (first,) = script.stable()
    assert script.leave(first, first) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert script.state() == "Empty"
    value = script.log[-1].value
    assert value is not None
    stored = decode_group_value(value)
    assert (stored.generation, stored.members, stored.protocol, stored.leader) == (2, (), None, None)


def test_leaving_makes_the_others_rebalance_and_answers_what_was_parked() -> None:
    script = Script()
    leader, follower = two_joined(script)
    waiting = script.sync(follower, 1)
    assert script.leave(follower) == [ErrorCode.NONE]
    assert script.synced(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert script.shard.parked() == []


def test_a_client_that_was_told_its_id_may_leave_before_it_joins() -> None:
    script = Script()
    (first,) = script.stable()
    told = script.joined(script.join(requires_member_id=True)).member_id
    parked = script.join(first)
    assert parked not in script.replies
    assert script.leave(told) == [ErrorCode.NONE]
    assert script.joined(parked).generation == 2


def test_leaving_a_group_that_does_not_exist_names_each_member() -> None:
    assert Script().leave("a", "b") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_a_session_timer_that_fires_late_for_a_gone_member_changes_nothing() -> None:
    script = Script()
    script.stable()
    script.tell(SessionExpired(group_id="g", member_id="gone"))
    script.tell(SessionExpired(group_id="other", member_id="gone"))
    assert script.state() == "Stable"


def test_a_reload_brings_back_the_generation_with_its_assignments_and_full_sessions() -> None:
    script = Script()
    leader, follower = script.stable(2)
    script.pass_time(9_000)
    script.reload()
    script.pass_time(9_999)
    assert script.state() == "Stable"
    assert script.heartbeat(leader, 1) is ErrorCode.NONE
    assert script.synced(script.sync(follower, 1)).assignment == follower.encode()
    script.pass_time(10_000)
    assert script.state() != "Stable"


def test_a_reload_knows_members_as_their_newest_generation_stored_them() -> None:
    script = Script()
    members = script.stable(2, protocols=(("range", b"old"), ("sticky", b"old")))
    newer: dict[str, Any] = {
        "protocols": (("sticky", b"new"), ("range", b"new")),
        "session_timeout_ms": 20_000,
    }
    tokens = [script.join(**newer), *(script.join(member, **newer) for member in members)]
    leader = script.joined(tokens[0]).leader
    assert script.joined(tokens[0]).protocol_name == "sticky"
    script.sync(leader, 2, dict.fromkeys(members, b""))

    script.reload()

    described = script.ask(DescribeGroup(group_id="g"))
    assert [member.metadata for member in described.members] == [b"new"] * 3
    script.pass_time(19_999)
    assert script.heartbeat(leader, 2) is ErrorCode.NONE
    newcomer = script.join(protocols=(("range", b""), ("sticky", b"")))
    assert newcomer not in script.replies, "it waits for the others to join again"


def test_a_member_that_hears_of_its_generation_as_others_fall_silent_has_a_full_session() -> None:
    script = Script()
    silent, *members = script.stable(3)
    script.reload()
    tokens = [script.join(member, protocols=(("range", b"new"),)) for member in members]
    script.pass_time(10_000)
    assert [script.joined(token).generation for token in tokens] == [2, 2]
    assert script.heartbeat(silent, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert [script.heartbeat(member, 2) for member in members] == [ErrorCode.NONE] * 2


def test_a_generation_that_was_never_stored_is_forgotten_by_a_reload() -> None:
    script = Script()
    first, _ = script.stable(2)
    script.leave(first)
    script.reload()
    assert script.state() == "Stable", "only a stored generation counts"
    assert script.heartbeat(first, 1) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_assignments_that_cannot_be_stored_are_given_to_nobody(error: ErrorCode, answer: ErrorCode) -> None:
    script = Script()
    leader, follower = two_joined(script)
    waiting = script.sync(follower, 1)
    script.append_error = error
    token = script.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert script.synced(token).error is script.synced(waiting).error is answer
    assert script.state() == "PreparingRebalance"
    assert script.log == []


def test_a_group_becomes_empty_even_when_that_cannot_be_stored() -> None:
    script = Script()
    (first,) = script.stable()
    script.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert script.leave(first) == [ErrorCode.NONE]
    assert script.state() == "Empty"


def test_describe_shows_protocol_metadata_and_assignment_only_while_stable() -> None:
    script = Script()
    leader, follower = two_joined(script)
    described = script.ask(DescribeGroup(group_id="g"))
    assert (described.state, described.protocol_type, described.protocol_name) == (
        "CompletingRebalance",
        "consumer",
        "",
    )
    assert [(member.metadata, member.assignment) for member in described.members] == [(b"", b"")] * 2
    script.sync(leader, 1, {leader: b"L", follower: b"F"})
    described = script.ask(DescribeGroup(group_id="g"))
    assert (described.state, described.protocol_name) == ("Stable", "range")
    assert [(m.member_id, m.client_host, m.metadata, m.assignment) for m in described.members] == [
        (leader, "/127.0.0.1", b"r", b"L"),
        (follower, "/127.0.0.1", b"r", b"F"),
    ]
    assert script.ask(DescribeGroup(group_id="none")).state == "Dead"


def test_overviews_show_every_group_with_its_state() -> None:
    script = Script(config=Groups(group_initial_rebalance_delay_ms=0))
    script.stable()
    script.commit("", -1, 1, group_id="simple")
    shown = {(each.group_id, each.protocol_type, each.state) for each in script.shard.overviews()}
    assert shown == {("g", "consumer", "Stable"), ("simple", "", "Empty")}
