"""Joining: ids, the initial delay, parked joins, the vote, leaders, limits, static members."""

from __future__ import annotations

from typing import Any

import pytest
from group_script import Script

from headrace.broker.config.sections import Groups
from headrace.broker.errors import ErrorCode
from headrace.broker.groups import joining
from headrace.broker.groups.events import LeavingMember, OffsetRetentionDue


def test_a_new_member_that_must_know_its_id_is_told_and_comes_back_with_it() -> None:
    script = Script()
    told = script.joined(script.join(requires_member_id=True))
    assert told.error is ErrorCode.MEMBER_ID_REQUIRED
    assert told.member_id == "c-1"
    token = script.join(told.member_id, requires_member_id=True)
    script.pass_time(0)
    answer = script.joined(token)
    assert (answer.error, answer.generation, answer.leader) == (ErrorCode.NONE, 1, "c-1")
    assert answer.members == (("c-1", None, b"r"),)


def test_a_rebalance_waits_for_a_client_that_was_told_its_id_until_its_session_is_over() -> None:
    script = Script()
    (first,) = script.stable()
    told = script.joined(script.join(requires_member_id=True)).member_id
    parked = script.join(first)
    script.pass_time(9_999)
    script.heartbeat(first, 1)
    assert parked not in script.replies
    script.pass_time(1)
    assert script.joined(parked).generation == 2
    assert script.joined(script.join(told, requires_member_id=True)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_clients_that_were_told_an_id_are_bounded_and_their_timers_end_with_their_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining, "PENDING_MEMBERS_COUNT_MAX", 2)
    script = Script()
    told = [script.joined(script.join(requires_member_id=True)) for _ in range(3)]
    assert [answer.error for answer in told] == [
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    timers = len(script.timers)
    script.join(told[0].member_id)
    assert len(script.timers) == timers + 1, "a session and a rebalance timer for a pending one"


def test_a_first_rebalance_waits_for_the_initial_delay_and_longer_while_members_come() -> None:
    script = Script(config=Groups(group_initial_rebalance_delay_ms=3_000))
    first = script.join()
    script.pass_time(2_000)
    second = script.join()
    script.pass_time(1_000)
    assert first not in script.replies
    script.pass_time(3_000)
    assert script.joined(first).generation == script.joined(second).generation == 1
    assert len(script.joined(first).members) == 2
    assert script.joined(second).members == ()


def test_the_initial_delay_ends_with_the_rebalance_time_out_however_many_come() -> None:
    script = Script(config=Groups(group_initial_rebalance_delay_ms=3_000))
    first = script.join(rebalance_timeout_ms=8_000)
    for _ in range(3):
        script.pass_time(2_500)
        script.join(rebalance_timeout_ms=8_000)
    assert first not in script.replies
    script.pass_time(500)
    assert len(script.joined(first).members) == 4


def test_a_second_member_makes_the_first_rejoin_and_all_parked_joins_are_answered_together() -> None:
    script = Script()
    (first,) = script.stable()
    second = script.join()
    assert script.state() == "PreparingRebalance"
    assert script.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in script.replies
    rejoined = script.join(first)
    assert script.joined(rejoined).generation == script.joined(second).generation == 2
    assert script.joined(second).leader == first


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    script = Script()
    first, second = script.stable(2)
    parked = script.join(first)
    for _ in range(12):
        assert parked not in script.replies
        assert script.heartbeat(second, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        script.pass_time(5_000)
    assert script.joined(parked).members == ((first, None, b"r"),)
    assert script.heartbeat(second, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_joined_member_leads_when_the_leader_stays_away() -> None:
    script = Script()
    leader, follower = script.stable(2)
    token = script.join(follower, protocols=(("range", b"changed"),))
    script.pass_time(10_001)
    assert script.heartbeat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.joined(token).leader == follower


@pytest.mark.parametrize("first", ["range", "roundrobin"])
def test_a_tie_of_votes_goes_as_in_apache_kafka_whoever_joins_first(first: str) -> None:
    script = Script()
    second = "roundrobin" if first == "range" else "range"
    orders = ((first, second), (second, first))
    tokens = [script.join(protocols=tuple((name, b"") for name in order)) for order in orders]
    script.pass_time(0)
    assert {script.joined(token).protocol_name for token in tokens} == {"roundrobin"}


def test_the_protocol_with_the_most_votes_among_the_common_ones_wins() -> None:
    script = Script(config=Groups(group_initial_rebalance_delay_ms=10))
    preferences = ["ab", "ba", "bac"]
    tokens = [script.join(protocols=tuple((name, name.encode()) for name in each)) for each in preferences]
    script.pass_time(60_000)
    assert {script.joined(token).protocol_name for token in tokens} == {"b"}
    assert [metadata for _, _, metadata in script.joined(tokens[0]).members] == [b"b"] * 3


def test_an_instance_that_brings_the_id_of_a_pending_member_hears_kafkas_catch_all_error() -> None:
    script = Script()
    member = script.joined(script.join(requires_member_id=True)).member_id
    answer = script.joined(script.join(member, instance_id="i"))
    assert (answer.error, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")


def test_a_member_without_a_common_protocol_or_of_another_type_is_refused() -> None:
    script = Script()
    (first,) = script.stable()
    different: list[dict[str, Any]] = [{"protocols": (("sticky", b""),)}, {"protocol_type": "connect"}]
    for overrides in different:
        assert script.joined(script.join(**overrides)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert script.heartbeat(first, 1) is ErrorCode.NONE


@pytest.mark.parametrize("overrides", [{"protocols": ()}, {"protocol_type": ""}])
def test_the_first_member_must_name_protocols_and_their_type(overrides: dict[str, Any]) -> None:
    script = Script()
    assert script.joined(script.join(**overrides)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert script.state() == "Empty", "Kafka, too, has made the group by then"
    script.tell(OffsetRetentionDue(group_id="g"))
    assert script.shard.groups == {}


def test_session_time_outs_have_bounds() -> None:
    script = Script()
    for timeout_ms in (5_999, 1_800_001):
        answer = script.joined(script.join(session_timeout_ms=timeout_ms))
        assert answer.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_an_unknown_member_id_does_not_make_a_group() -> None:
    script = Script()
    assert script.joined(script.join("nobody")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.shard.groups == {}


def test_a_follower_that_joins_again_unchanged_gets_the_generation_it_has() -> None:
    script = Script()
    leader, follower = script.stable(2)
    answer = script.joined(script.join(follower))
    assert (answer.error, answer.generation, answer.members) == (ErrorCode.NONE, 1, ())
    assert script.state() == "Stable"
    parked = script.join(leader)
    assert script.state() == "PreparingRebalance"
    assert parked not in script.replies


def test_a_repeated_join_while_the_generation_completes_gets_the_same_answer() -> None:
    script = Script()
    first = script.join()
    script.pass_time(0)
    again = script.join(script.joined(first).member_id)
    assert script.joined(again) == script.joined(first)


def test_a_retried_join_releases_the_one_that_was_parked() -> None:
    script = Script()
    first, _ = script.stable(2)
    parked = script.join(first)
    retried = script.join(first)
    assert script.joined(parked).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert retried not in script.replies


def test_a_group_has_no_more_members_than_group_max_size() -> None:
    script = Script(config=Groups(group_initial_rebalance_delay_ms=0, group_max_size=2))
    members = script.stable(2)
    refused = script.joined(script.join())
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert script.state() == "Stable"
    assert [script.heartbeat(member, 1) for member in members] == [ErrorCode.NONE] * 2


def test_a_loaded_group_over_its_size_rebalances_and_turns_the_rest_away() -> None:
    script = Script()
    members = script.stable(3)
    script.shard.config = script.config = Groups(group_max_size=2)
    script.reload()
    tokens = [script.join(member) for member in members]
    assert script.joined(tokens[2]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [script.joined(token).generation for token in tokens[:2]] == [2, 2]


def test_protocols_that_could_never_be_stored_are_refused() -> None:
    script = Script()
    answer = script.joined(script.join(protocols=(("range", b"x" * 1_048_577),)))
    assert answer.error is ErrorCode.INVALID_REQUEST


# Static members (KIP-345).


def test_a_static_member_that_returns_without_its_id_keeps_its_assignment_without_a_rebalance() -> None:
    script = Script()
    (old,) = script.stable(instance_id="i")
    answer = script.joined(script.join(instance_id="i"))
    assert answer.error is ErrorCode.NONE
    assert answer.member_id != old
    assert answer.generation == 1
    assert answer.leader == old, "before JoinGroup v9 it must not believe that it has to assign"
    assert script.state() == "Stable"
    assert script.synced(script.sync(answer.member_id, 1, instance_id="i")).assignment == old.encode()
    assert script.heartbeat(old, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert script.heartbeat(answer.member_id, 1, "i") is ErrorCode.NONE


def test_a_returning_static_leader_is_told_to_skip_the_assignment() -> None:
    script = Script()
    script.stable(instance_id="i")
    answer = script.joined(script.join(instance_id="i", skips_assignment=True))
    assert (answer.skip_assignment, answer.leader) == (True, answer.member_id)
    assert answer.members == ((answer.member_id, "i", b"r"),)


def test_the_new_id_of_a_static_member_is_stored() -> None:
    script = Script()
    (old,) = script.stable(instance_id="i")
    new = script.joined(script.join(instance_id="i")).member_id
    script.reload()
    assert script.heartbeat(new, 1, "i") is ErrorCode.NONE
    assert script.heartbeat(old, 1, "i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_whose_new_id_cannot_be_stored_stays_who_it_was() -> None:
    script = Script()
    (old,) = script.stable(instance_id="i")
    script.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = script.joined(script.join(instance_id="i"))
    assert (refused.error, refused.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert (refused.generation, refused.protocol_name, refused.leader) == (1, "range", old)
    script.append_error = None
    assert script.heartbeat(old, 1, "i") is ErrorCode.NONE


def test_a_static_member_with_other_protocols_makes_the_group_rebalance() -> None:
    script = Script()
    (old,) = script.stable(instance_id="i")
    answer = script.joined(script.join(instance_id="i", protocols=(("range", b"r"), ("sticky", b"s"))))
    assert answer.generation == 1
    token = script.join(instance_id="i", protocols=(("sticky", b"s"),))
    assert script.joined(token).generation == 2
    assert script.joined(token).protocol_name == "sticky"
    assert script.heartbeat(old, 1, "i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_second_holder_of_an_instance_id_fences_the_parked_first() -> None:
    script = Script()
    script.stable()
    first = script.join(instance_id="i")
    second = script.join(instance_id="i")
    assert script.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    assert second not in script.replies


def test_a_static_member_survives_a_rebalance_that_it_missed() -> None:
    script = Script()
    (static,) = script.stable(instance_id="i", session_timeout_ms=1_000_000)
    other = script.join()
    script.pass_time(60_000)
    assert script.joined(other).leader == script.joined(other).member_id
    assert {instance for _, instance, _ in script.joined(other).members} == {"i", None}
    assert script.heartbeat(static, 2, "i") is ErrorCode.NONE


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    script = Script()
    (static,) = script.stable(instance_id="i")
    assert script.leave(LeavingMember(member_id="", instance_id="j")) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert script.leave(LeavingMember(member_id="other", instance_id="i")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert script.leave(LeavingMember(member_id="", instance_id="i")) == [ErrorCode.NONE]
    assert script.heartbeat(static, 1, "i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert script.state() == "Empty"


def test_a_static_member_that_comes_back_has_its_old_session_time_out_for_its_first_heartbeat() -> None:
    script = Script()
    script.stable(instance_id="i", session_timeout_ms=6_000)
    member = script.joined(script.join(instance_id="i", session_timeout_ms=20_000)).member_id
    script.pass_time(5_999)
    assert script.heartbeat(member, 1, "i") is ErrorCode.NONE
    script.pass_time(19_999)
    assert script.heartbeat(member, 1, "i") is ErrorCode.NONE
    again = script.joined(script.join(instance_id="i", session_timeout_ms=6_000)).member_id
    script.pass_time(6_001)
    assert script.heartbeat(again, 1, "i") is ErrorCode.NONE
    script.pass_time(6_001)
    assert script.heartbeat(again, 1, "i") is ErrorCode.UNKNOWN_MEMBER_ID
