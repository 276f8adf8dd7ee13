"""A host is drained though a machine beside it is down, which the gates would otherwise be asked on."""

from __future__ import annotations

import pytest
from deployments import Deployment

ZOOKEEPER = "        dc-east-zookeeper-1: {headrace_address: 127.76.1.11, zookeeper_id: 1}\n"
BROKER = "dc-east-broker-1: {headrace_address: 127.76.1.1, broker_id: 1"
# Nothing listens at that port.
DOWN = "headrace_machine: dc-east-broker-1, ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1"


def zookeeper(number: int) -> str:
    return (
        ZOOKEEPER.replace("-1:", f"-{number}:")
        .replace("id: 1", f"id: {number}")
        .replace(".11", f".1{number}")
    )


@pytest.mark.acceptance
def test_a_gate_is_asked_on_a_broker_whose_machine_answers(deployment: Deployment) -> None:
    deployment.edit(ZOOKEEPER, "".join(zookeeper(number) for number in (1, 2, 3)))
    deployment.edit(
        "    zookeeper:\n      hosts:\n",
        "    zookeeper:\n      hosts:\n        dc-east-zookeeper-2:\n        dc-east-zookeeper-3:\n",
    )
    deployment.edit(BROKER, f"{BROKER}, {DOWN}")
    result = deployment.play(
        "drain.yml", "--check", "--limit", "dc-east-zookeeper-1", "-e", "drain_reason='its disk is replaced'"
    )
    assert result.returncode == 0, result.stdout[-3000:]
    assert "dc-east-zookeeper-1 -> dc-east-broker-2" in result.stdout
