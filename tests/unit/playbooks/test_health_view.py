"""What is told of hosts that were looked at, of those that did not answer, and of what clusters said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inventory_kit import UNSECURED
from playbooks_kit import load

from headrace_inventory.looks import looked_at, looks
from headrace_views.health import duration, health, table

GROUPS = {
    "all": ["e-1", "e-2", "o-1"],
    "broker": ["e-1", "e-2", "o-1"],
    "audit": ["o-1"],
    "live": ["e-1", "e-2"],
    "offline": ["o-1"],
}
PORTS = {"broker": 9092, "metrics": 9404}


def service(host: str, **found: Any) -> dict[str, Any]:
    return {
        "name": f"headrace-broker-{host[-1]}",
        "host": host,
        "state": "running",
        "since_s": 4000,
        "restarts": 1,
        "release": "/opt/headrace/releases/0.1.0/bin",
        "complaint": None,
        **found,
    }


def look(host: str, **found: Any) -> dict[str, Any]:
    disk = {"folder": "/var/lib/headrace", "free_mb": 900, "whole_mb": 1000}
    return {"services": [service(host, **found)], "disks": [disk], "complaints": []}


def hostvars(**looks_found: Any) -> dict[str, dict[str, Any]]:
    """Three hosts that are well, each having been asked what it can be asked, but for what is given."""
    names = {"e_1": "dc-east", "e_2": "dc-east", "o_1": "offline"}
    found: dict[str, dict[str, Any]] = {}
    for key, datacenter in names.items():
        host = key.replace("_", "-")
        found[host] = {
            "headrace_datacenter": datacenter,
            "headrace_address": "10.0.0.1",
            "headrace_service_prefix": "headrace-",
            "broker_id": int(host[-1]),
            **UNSECURED,
            "health_look": looks_found.get(key, look(host)),
        }
    found["e-1"]["gate_answers"] = {"answers": [{"name": "cluster dc-east", "code": 0, "said": ""}]}
    said = [{"name": name, "code": 0, "said": ""} for name in ("cluster offline", "mirror", "audit")]
    found["o-1"]["gate_answers"] = {"answers": said}
    return found


def told(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return health(GROUPS["all"], found, GROUPS)


def test_all_is_well() -> None:
    found = told(hostvars())
    assert found["problems"] == []
    assert "e-1   headrace-broker-1  running  1 h 6 min  1         release 0.1.0  yes" in found["text"]
    assert "mirror: well" in found["text"]
    assert "has not passed its gates" not in found["text"]


def test_a_change_that_was_interrupted_is_told_and_is_no_fault() -> None:
    found = told(hostvars(e_2=look("e-2") | {"unsettled": ["headrace-broker-2"]}))
    assert found["problems"] == []
    assert (
        "\n\nheadrace-broker-2 runs a change that has not passed its gates: run the play again that made it.\n\n"
        in found["text"]
    )


def test_a_service_that_nobody_wants_any_more_is_told_and_is_no_fault() -> None:
    sentence = "headrace-load runs on e-2 and no host of the inventory has it: stop it there."
    found = told(hostvars(e_2=look("e-2") | {"orphans": [sentence]}))
    assert found["problems"] == []
    assert f"\n\n{sentence}\n\n" in found["text"]


def test_what_the_manager_keeps_beside_what_is_wanted_has_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("headrace_look")
    monkeypatch.setattr(module, "kept", lambda manager, path: {"broker-1": 17, "load": 18})
    assert module.orphans(["broker-1", "load"], "supervisor", "/run/s.sock") == []
    (sentence,) = module.orphans(["broker-1"], "supervisor", "/run/s.sock")
    assert sentence.startswith("load runs on ")
    assert "supervisorctl -s unix:///run/s.sock stop load" in sentence


def test_a_manager_that_is_not_asked_or_does_not_answer_keeps_nothing_that_could_be_told(
    tmp_path: Path,
) -> None:
    module = load("headrace_look")
    assert module.orphans([], None, "") == []
    (tmp_path / "s.sock").touch()
    assert module.orphans([], "supervisor", str(tmp_path / "s.sock")) == []


def test_a_service_beside_which_lies_what_it_ran_before_is_unsettled(tmp_path: Path) -> None:
    module = load("headrace_look")
    kept = tmp_path / "headrace-broker-2" / "kept"
    kept.mkdir(parents=True)
    services = [{"name": "headrace-broker-1"}, {"name": "headrace-broker-2"}]
    assert module.unsettled(services, str(tmp_path)) == []
    (kept / "kept.json").write_text("{}")
    assert module.unsettled(services, str(tmp_path)) == ["headrace-broker-2"]
    assert module.unsettled(services, None) == []


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            {"e_2": look("e-2", state="stopped", complaint="stopped.")},
            "headrace-broker-2 on e-2 is not well: stopped.",
        ),
        ({"e_2": {"unanswered": "Host e-2 does not answer."}}, "Host e-2 does not answer."),
        (
            {"e_2": {**look("e-2"), "complaints": ["The clock is not synchronised."]}},
            "The clock is not synchronised.",
        ),
        (
            {"e_2": {**look("e-2"), "disks": [{"folder": "/d", "free_mb": 9, "whole_mb": 1000}]}},
            "The disk of /d on e-2 has 9 MB of 1,000 MB left.",
        ),
        (
            {"e_2": look("e-2", certificate_left_s=14 * 86_400 - 1)},
            "The certificate that headrace-broker-2 on e-2 shows expires in 13 d 23 h: "
            "renew it with playbooks/certificates.yml.",
        ),
        (
            {"e_2": look("e-2", certificate_left_s=-3700)},
            "The certificate that headrace-broker-2 on e-2 shows has been expired for 1 h 1 min: "
            "renew it with playbooks/certificates.yml.",
        ),
    ],
)
def test_what_is_not_well_has_a_sentence(found: dict[str, Any], sentence: str) -> None:
    assert told(hostvars(**found))["problems"] == [sentence]


@pytest.mark.parametrize(
    ("state", "problems"),
    [
        (
            "unknown",
            [
                "3 services of one machine, headrace-broker-0 on e-0 first, are not well: supervisor does not run."
            ],
        ),
        (
            "stopped",
            [
                f"headrace-broker-{number} on e-{number} is not well: supervisor does not run."
                for number in range(3)
            ],
        ),
    ],
)
def test_services_that_nobody_can_be_asked_about_share_a_sentence(state: str, problems: list[str]) -> None:
    services = [service(f"e-{n}", state=state, complaint="supervisor does not run.") for n in range(3)]
    found = told(hostvars(e_2={**look("e-2"), "services": services}))
    assert found["problems"] == problems
    assert found["text"].count(state) == 3


@pytest.mark.parametrize("left_s", [None, 14 * 86_400])
def test_a_certificate_that_lasts_is_not_told_of(left_s: int | None) -> None:
    assert told(hostvars(e_2=look("e-2", certificate_left_s=left_s)))["problems"] == []


def test_a_host_that_does_not_answer_stands_in_the_table() -> None:
    text = told(hostvars(e_2={"unanswered": "Host e-2 does not answer."}))["text"]
    assert "e-2                      unknown" in text
    assert "does not answer" in text


def test_a_drained_host_is_stopped_on_purpose() -> None:
    drained = {
        **look("e-2", state="stopped", complaint="stopped"),
        "drained": [{"host": "e-2", "sentence": "e-2 is drained since 12:00 by ann: disk"}],
    }
    found = told(hostvars(e_2=drained))
    assert found["problems"] == []
    assert "e-2 is drained since 12:00 by ann: disk" in found["text"]


def test_what_a_command_said_and_what_nobody_could_be_asked_are_problems() -> None:
    found = hostvars()
    found["o-1"]["gate_answers"] = {"answers": [{"name": "mirror", "code": 1, "said": "one\ntwo"}]}
    assert told(found)["problems"] == [
        "mirror is not well: \n  one\n  two",
        "cluster offline could not be asked: none of the hosts that could be asked answers.",
        "audit could not be asked: none of the hosts that could be asked answers.",
    ]


def test_a_machine_is_looked_at_once_for_all_its_hosts_of_the_play() -> None:
    found = hostvars()
    for variables in found.values():
        variables["headrace_machine"] = "box"
    assert looked_at("e-1", ["e-1", "o-1"], found) == ["e-1", "o-1"]
    assert looked_at("o-1", ["e-1", "o-1"], found) == []


def test_each_service_is_asked_where_it_listens() -> None:
    groups = {**GROUPS, "broker": ["e-1"], "audit": []}
    (asked,) = looks(["e-1"], hostvars(), groups, PORTS)
    assert (asked["name"], asked["host"]) == ("headrace-broker-1", "e-1")
    assert [(probe["kind"], probe["port"], probe["path"]) for probe in asked["probes"]] == [
        ("kafka", 9092, ""),
        ("http", 9404, "/ready"),
    ]


def test_durations_have_their_two_largest_units() -> None:
    assert [duration(seconds) for seconds in (None, 5, 60, 3600, 90_000)] == [
        "",
        "5 s",
        "1 min",
        "1 h 0 min",
        "1 d 1 h",
    ]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(("a", "b"), [("long", "x")]) == "a     b\nlong  x"
