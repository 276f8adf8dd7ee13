"""What ZooKeepers say of themselves, and whether an ensemble is in step or can do without one of them."""

from __future__ import annotations

from typing import Any

import pytest
from playbooks_kit import load

ensemble = load("ansible.module_utils.headrace_ensemble")
LEADER = "zk_version\t3.9.3\nzk_server_state\tleader\nzk_learners\t2\nzk_synced_followers\t2\n"
FOLLOWER = "zk_version\t3.9.3\nzk_server_state\tfollower\n"
ALONE = "zk_server_state\tstandalone\n"
SILENT = "This ZooKeeper instance is not currently serving requests\n"


def members(*answers: str) -> dict[str, Any]:
    return {f"10.0.0.{number}:2181": ensemble.told(answer) for number, answer in enumerate(answers, 1)}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((FOLLOWER, LEADER, FOLLOWER), None),
        ((ALONE,), None),
        ((FOLLOWER, LEADER.replace("followers\t2", "followers\t1"), FOLLOWER), "1 of 2 followers in step"),
        ((FOLLOWER, LEADER, SILENT), "10.0.0.3:2181 serves nobody: This ZooKeeper instance is not"),
        ((FOLLOWER, FOLLOWER), "Of 2 ZooKeepers 0 lead: none."),
        ((ALONE, LEADER), "Of 2 ZooKeepers 2 lead: 10.0.0.1:2181, 10.0.0.2:2181."),
    ],
)
def test_an_ensemble_is_whole_with_one_leader_and_all_followers_in_step(
    answers: tuple[str, ...], said: str | None
) -> None:
    found = ensemble.hindrance(members(*answers))
    assert found is None if said is None else said in found


def test_who_leads_is_told_by_its_address() -> None:
    assert ensemble.leader(members(FOLLOWER, LEADER, FOLLOWER)) == "10.0.0.2"
    assert ensemble.leader(members(ALONE)) == "10.0.0.1"
    assert ensemble.leader(members(SILENT)) == ""


def test_a_member_may_stop_where_a_quorum_is_left() -> None:
    whole, small = members(FOLLOWER, LEADER, FOLLOWER), members(FOLLOWER, LEADER, SILENT)
    assert ensemble.stop_hindrance(whole, "10.0.0.2:2181") is None
    assert "1 of 3 would serve, and 2 are needed" in ensemble.stop_hindrance(small, "10.0.0.1:2181")
    assert ensemble.stop_hindrance(small, "10.0.0.3:2181") is None
    assert "0 of 1 would serve, and 1 are needed" in ensemble.stop_hindrance(members(ALONE), "10.0.0.1:2181")


def test_nobody_there_is_said() -> None:
    assert "does not answer" in ensemble.ask("127.0.0.1:1").wrong


def test_a_member_that_may_not_tell_all_tells_its_mode() -> None:
    assert ensemble.told("mntr is not executed because it is not in the whitelist.\n") is None
    leader = ensemble.told_shortly("Zookeeper version: 3.9.3\nMode: leader\nNode count: 5\n")
    assert ensemble.hindrance({"10.0.0.1:2181": leader, **members(SILENT, FOLLOWER)}) is not None
    assert ensemble.hindrance({"10.0.0.9:2181": leader, **members(FOLLOWER, FOLLOWER)}) is None
    assert "serves nobody" in ensemble.told_shortly(SILENT).wrong
