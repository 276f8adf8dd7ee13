"""What forbids a change of the release, which one is the one before, and in which order hosts go on and back."""

from __future__ import annotations

from typing import Any

from headrace_inventory.upgrading import (
    back_order,
    due_order,
    release_before,
    release_problems,
    released_kinds,
    went_back,
)


def look(current: str, *versions: str, runs: tuple[str, ...] = (), **oldest: str) -> dict[str, Any]:
    """A host with these releases, each of which reads what the first one writes unless told otherwise."""
    return {
        "release_look": {
            "current": current,
            "releases": [
                {
                    "version": version,
                    "oldest_reader": oldest.get("v" + version.replace(".", "_"), versions[0]),
                    "runs": version in (runs or (current,)),
                }
                for version in versions
            ],
        }
    }


def manifest(version: str, oldest_reader: str = "0.1.0") -> dict[str, Any]:
    return {"version": version, "oldest_reader": oldest_reader}


def test_an_upgrade_needs_a_way_back() -> None:
    hosts = {"a": look("0.1.0", "0.1.0"), "b": look("0.1.0", "0.1.0")}
    assert release_problems(hosts, hosts, "0.2.0", manifest("0.2.0")) == []
    assert release_problems(hosts, hosts, "0.3.0", manifest("0.3.0", "0.2.0")) == [
        "Release 0.3.0 writes what 0.1.0, which host a runs, does not read, so that there would be no way back: "
        "upgrade to 0.2.0 first."
    ]


def test_to_go_back_further_than_what_is_written_can_be_read_is_refused() -> None:
    hosts = {"a": look("0.10.0", "0.2.0", "0.9.0", "0.10.0", v0_10_0="0.9.0")}
    assert release_problems(hosts, hosts, "0.9.0", None) == []
    assert release_problems(hosts, hosts, "0.2.0", None) == [
        "Release 0.2.0 does not read what 0.10.0, which host a runs, has written: the oldest that does is 0.9.0."
    ]


def test_what_is_not_there_is_not_gone_back_to() -> None:
    hosts = {"a": look("0.2.0", "0.1.0", "0.2.0"), "bare": look("")}
    assert release_problems(hosts, hosts, "0.1.5", None) == [
        "Host a has no release 0.1.5 to go back to; it has 0.1.0, 0.2.0.",
        "Host bare runs no release yet: roll out with playbooks/site.yml.",
    ]
    only = {"a": look("0.2.0", "0.2.0")}
    assert "there is none to go back to" in release_problems(only, only, "0.2.0", None)[0]
    ended = {"a": look("0.2.0", "0.1.0", "0.2.0")}
    assert "name the release to go back to" in release_problems(ended, ended, "0.2.0", None)[0]


def test_the_release_before_is_the_newest_older_one_that_all_hosts_have() -> None:
    hosts = {"a": look("0.10.0", "0.2.0", "0.9.0", "0.10.0"), "b": look("0.10.0", "0.2.0", "0.10.0")}
    assert release_before(hosts, hosts) == "0.2.0"
    assert release_before(["a"], hosts) == "0.9.0"
    assert release_before(["x"], {"x": look("0.2.0", "0.2.0")}) == "0.2.0"


def test_of_several_in_use_the_release_before_is_the_oldest() -> None:
    """An upgrade that was interrupted, or a way back: in both `current` is not what all hosts run."""
    upgrade = look("0.2.0", "0.1.0", "0.2.0", "0.3.0", runs=("0.2.0", "0.3.0"))
    back = look("0.3.0", "0.1.0", "0.2.0", "0.3.0", runs=("0.2.0",))
    assert release_before(["a"], {"a": upgrade}) == "0.2.0"
    assert release_before(["a"], {"a": back}) == "0.2.0"
    assert release_problems(["a"], {"a": upgrade}, "0.2.0", None) == []


def test_hosts_that_an_interrupted_upgrade_did_not_reach_do_not_bar_the_way_back() -> None:
    upgraded = look("0.1.0", "0.1.0", "0.2.0", runs=("0.2.0",))
    hosts = {"a": look("0.1.0", "0.1.0", "0.2.0"), "b": upgraded}
    assert release_before(hosts, hosts) == "0.1.0"
    assert release_problems(hosts, hosts, "0.1.0", None) == []


def test_what_has_not_passed_comes_first_and_a_host_that_failed_goes_back_first() -> None:
    hosts: dict[str, dict[str, Any]] = {
        "a": {"turn_kept": []},
        "b": {"turn_kept": ["broker"]},
        "c": {},
        "d": {"turn_kept": ["broker"], "turn_back": ["broker"]},
    }
    assert due_order(hosts, hosts) == ["b", "d", "a", "c"]
    groups = {"change_failed": ["b"], "change_begun": ["b"]}
    assert back_order(["b", "d", "a", "c"], hosts, groups) == ["b", "d"]
    groups = {"change_failed": ["a"], "change_begun": ["b", "d", "a"]}
    assert back_order(["b", "d", "a", "c"], hosts, groups) == ["a", "d", "b"]
    assert went_back(hosts, hosts) == ["d"]


def test_services_of_the_release_have_turns_those_first_that_others_need() -> None:
    groups = {"offline": ["x"], "load": ["x"], "audit": ["x"], "haproxy": ["x"], "broker": ["x"]}
    assert released_kinds("x", groups) == ["broker", "counter", "auditor", "load"]
