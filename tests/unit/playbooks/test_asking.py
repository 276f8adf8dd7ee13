"""What is made of a host that does not answer; tests/deploy has it end a run."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure

from headrace_inventory.asking import answered, reason_in, unanswered


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "Failed to connect to the host via ssh: ssh: connect to host\n  10.0.0.1 port 22: Connection timed out.\n",
            None,
        ),
        ("MODULE FAILURE\nError response from daemon: No such container: zk-1\n", "No such container: zk-1"),
        ("Error response from daemon: container 0a1b is not running", "container 0a1b is not running"),
        ("", "no reason given"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_reason_is_half_a_sentence(said: str, reason: str | None) -> None:
    expected = reason or (
        "Failed to connect to the host via ssh: ssh: connect to host 10.0.0.1 port 22: Connection timed out"
    )
    assert reason_in(said) == expected


def test_the_sentence_names_host_connection_and_address() -> None:
    variables = {"inventory_hostname": "zk-1", "ansible_connection": "community.docker.docker"}
    result = unanswered("No such container: zk-1", variables)
    assert (result["failed"], result["msg"]) == (
        True,
        "Host zk-1 does not answer (docker to zk-1: No such container: zk-1).",
    )


def test_where_a_task_is_delegated_the_sentence_names_whom_it_asks() -> None:
    delegate = {"ansible_host": "10.0.0.9", "ansible_connection": "ssh"}
    variables = {"inventory_hostname": "b-1", "ansible_delegated_vars": {"audit-1": delegate}}

    def ask() -> dict[str, Any]:
        raise AnsibleConnectionFailure("timed out")

    result = answered(ask, variables, "audit-1")
    assert result["msg"] == "Host audit-1 does not answer (ssh to 10.0.0.9: timed out)."
    assert result["headrace_unanswered_host"] == "audit-1"
    assert answered(ask, variables)["headrace_unanswered_host"] == "b-1"


def test_a_host_without_python_is_told_what_it_lacks() -> None:
    variables = {"inventory_hostname": "zk-1"}
    result = {"failed": True, "rc": 127, "msg": "The module interpreter '/usr/bin/python3' was not found."}
    assert answered(lambda: result, variables)["msg"] == (
        "Host zk-1 has no Python in /usr/bin/python3: install it there, or name another in ansible_python_interpreter."
    )
