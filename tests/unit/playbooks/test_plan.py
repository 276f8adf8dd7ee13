"""What a plan says of what modules would do."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_views.plan import exit_code, plan_of, reasons, release_name, summary, text_of

RELEASE = "/opt/headrace/releases/{}/bin"


def seen(module: str, *, failed: bool = False, name: str = "", **result: Any) -> dict[str, Any]:
    told = {"changed": True, **result}
    return {
        "play": "Run",
        "task": "A task",
        "module": module,
        "host": "h-1",
        "name": name,
        "failed": failed,
        "result": told,
    }


def difference(path: str, before: str, after: str) -> dict[str, str]:
    return {"before": before, "after": after, "before_header": path, "after_header": path}


def started_from(properties: str, release: str = "0.1.0") -> str:
    return (
        f"d1  definition\n{properties}  /etc/headrace/broker-1/server.properties\n{RELEASE.format(release)}\n"
    )


def broker(**result: Any) -> dict[str, Any]:
    found = [
        difference("/etc/headrace/broker-1/server.properties", "a=1\nb=2\n", "a=1\nb=3\n"),
        difference("broker-1 is started from", started_from("p1"), started_from("p2")),
    ]
    return seen(
        "headrace_service",
        name="broker-1",
        **{"state": "running", "step": "restart", "diff": found, **result},
    )


def test_a_restart_has_its_reason_and_a_file_its_lines() -> None:
    text = text_of(plan_of([broker()]))
    assert "broker-1 on h-1 restarts: server.properties changes" in text
    assert "    -b=2\n      +b=3" in text
    assert "a=1" not in text
    assert text.endswith("Plan: 1 files to write, 1 to restart.")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"state": "missing", "step": "start", "diff": []}, "starts: it is not there yet"),
        ({"state": "stopped", "step": "start", "diff": []}, "starts: it does not run"),
        ({"state": "failing", "step": "restart", "diff": []}, "restarts: it ends again and again"),
    ],
)
def test_a_service_that_does_not_run_says_so(result: dict[str, Any], reason: str) -> None:
    if result["step"] == "start":
        result = {**result, "diff": [difference("broker-1 is started from", "\n", started_from("p1"))]}
    assert reason in text_of(plan_of([broker(**result)]))


def test_what_is_only_written_restarts_nothing() -> None:
    plan = plan_of([broker(step="none", diff=[difference("/etc/x", "1\n", "2\n")])])
    assert (len(plan["files"]), plan["services"], exit_code(plan)) == (1, [], 2)


def test_the_reason_names_files_and_releases() -> None:
    assert reasons(started_from("p1"), started_from("p1", "0.1.1")) == ["from release 0.1.0 to release 0.1.1"]
    assert reasons(started_from("p1"), "d2  definition\n/x/bin") == [
        "its definition changes",
        "server.properties goes",
        "from release 0.1.0 to /x/bin",
    ]
    assert reasons("\n", started_from("p1")) == ["what it runs from is not known"]
    assert release_name("/usr/sbin/haproxy") == "/usr/sbin/haproxy"


def test_nothing_to_do_is_0_and_what_nobody_wants_is_no_change() -> None:
    look = seen(
        "headrace_machine",
        changed=False,
        leftovers=["w-2"],
        warnings=["w-2 runs on box and no host …", "else"],
    )
    strangers = seen("headrace_topics", changed=False, strangers=["Broker 2 is in this cluster."])
    plan = plan_of([look, strangers, seen("headrace_release", changed=False)])
    assert exit_code(plan) == 0
    assert [each["sentence"] for each in plan["orphans"]] == [
        "w-2 runs on h-1, and no host of the inventory has it.",
        "Broker 2 is in this cluster.",
    ]
    assert [each["sentence"] for each in plan["warnings"]] == ["else"]
    assert summary(plan) == "Plan: nothing would change; 2 orphaned."


def test_a_drained_host_is_named_and_is_no_change() -> None:
    sentence = "h-1 is drained since noon by ann: disk"
    plan = plan_of([seen("headrace_mark", changed=False, drained=True, sentence=sentence)])
    assert exit_code(plan) == 0
    assert sentence in text_of(plan)


def test_a_failure_is_1_whatever_else_would_be_done() -> None:
    plan = plan_of([broker(), seen("headrace_machine", failed=True, msg="Too little memory.\nNo Java.")])
    assert exit_code(plan) == 1
    assert "  h-1  Too little memory.\n  No Java.\n" in text_of(plan)
    assert summary(plan).startswith("Plan: not whole, since 1 tasks failed;")


def test_every_module_is_told_and_what_has_no_words_by_its_task() -> None:
    release = difference("/opt/headrace/releases/0.1.1", "", "headrace 0.1.1 of abc: broker\n")
    kernel = difference("vm.swappiness", "60\n", "1\n")
    packages = difference("packages", "", "chrony\n")
    plan = plan_of(
        [
            seen("headrace_release", diff=[release], removed=["0.0.9"]),
            seen("headrace_preparation", diff=[kernel, packages], packages=["chrony"]),
            seen("headrace_files", diff=[difference("/etc/new", "", "a\nb\n")]),
            seen("headrace_supervisord"),
            seen("headrace_topics", created=["pageviews"]),
            seen("command"),
            seen("headrace_service", name="y", diff=[], kept=""),
            seen("headrace_service", name="x", diff=[difference("x after a boot", "stopped\n", "running\n")]),
        ]
    )
    assert {name: len(found) for name, found in plan.items() if found} == {
        "installations": 2,
        "removals": 1,
        "settings": 2,
        "files": 1,
        "services": 1,
        "topics": 1,
        "others": 2,
    }
    assert exit_code(plan) == 2
    assert "h-1:/etc/new  (new, 2 lines)" in text_of(plan)
    assert "+a" not in text_of(plan)
    assert "+a" in text_of(plan, full=True)


def test_the_same_change_of_several_hosts_is_shown_once() -> None:
    second = {**broker(), "host": "h-2"}
    text = text_of(plan_of([broker(), second]))
    assert text.count("+b=3") == 1
    assert "h-2:/etc/headrace/broker-1/server.properties" in text
