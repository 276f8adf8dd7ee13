"""Partitions that move between brokers while clients use them, by `headrace topics reassign`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import headrace
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from processes import DevCluster, eventually

from headrace.cli import topics

HEADRACE = ["-m", "headrace.cli"]
MESSAGES = 3000
THROTTLED = ["follower.replication.throttled.replicas", "leader.replication.throttled.replicas"]


def run(cluster: DevCluster | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`headrace topics` with these arguments and brokers."""
    bootstrap = cluster if isinstance(cluster, str) else cluster.bootstrap
    command = [sys.executable, *HEADRACE, "topics", *arguments, "--bootstrap", bootstrap]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def answer(cluster: DevCluster | str, *arguments: str) -> Any:
    done = run(cluster, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def replicas(cluster: DevCluster) -> dict[int, tuple[list[int], list[int]]]:
    """By partition of `moved`: the replicas and those out of sync."""
    found = answer(cluster, "describe", "moved")["partitions"]
    return {p["partition"]: (p["replicas"], p["out_of_sync"]) for p in found}


@pytest.mark.long
def test_partitions_move_while_they_are_written(
    dev_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = dev_cluster(brokers=3, set={"leader.imbalance.check.interval.seconds": "1"})
    run(cluster, "create", "moved", "--partitions", "3")
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1}
    )
    lost: list[str] = []

    def send(first: int) -> None:
        for number in range(first, first + MESSAGES):
            producer.produce(
                "moved", str(number), on_delivery=lambda e, _: lost.append(str(e)) if e else None
            )
            producer.poll(0)

    send(0)
    planned = run(cluster, "reassign", "plan", "moved", "--replication-factor", "3", "--json").stdout
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(planned)
    assert {len(p["replicas"]) for p in json.loads(planned)["partitions"]} == {3}
    throttled = ("--throttle", "50000000")
    moved = answer(cluster, "reassign", "start", "--plan", str(plan_file), "--wait", *throttled)
    assert answer(cluster, "describe", "moved")["configuration"] == {}
    assert ([row["partition"] for row in moved["moved"]], moved["refused"]) == ([0, 1, 2], [])
    assert all(len(found) == 3 and not late for found, late in replicas(cluster).values())
    send(MESSAGES)
    another_order_has_other_leaders(cluster, tmp_path)
    answer(cluster, "reassign", "start", "moved", "--brokers", "2,3", "--replication-factor", "1", "--wait")
    assert {tuple(found) for found, _ in replicas(cluster).values()} <= {(2,), (3,)}
    send(2 * MESSAGES)
    assert producer.flush(30) == 0
    assert lost == []
    assert read(cluster, 3 * MESSAGES) == {str(number) for number in range(3 * MESSAGES)}
    logs = cluster.data / "broker-1" / "logs"
    assert not [name for name in os.listdir(logs) if name in ("moved-0", "moved-1", "moved-2")]
    move_to_a_broker_that_hangs(cluster, tmp_path)


def test_a_throttle_lasts_as_long_as_its_moves_whatever_else_moves(
    dev_cluster: Callable[..., DevCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = dev_cluster(brokers=3)
    for topic in ("slow", "tiny"):
        run(cluster, "create", topic, "--partitions", "1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for _ in range(400):
        producer.produce("slow", os.urandom(10_000))
    assert producer.flush(30) == 0
    larger = ("--replication-factor", "3")
    answer(cluster, "reassign", "start", "slow", *larger, "--throttle", "50000")
    assert len(answer(cluster, "reassign", "start", "tiny", *larger, "--wait")["moved"]) == 1
    assert answer(cluster, "reassign", "show")["moving"]
    assert sorted(answer(cluster, "describe", "slow")["configuration"]) == THROTTLED
    again = answer(cluster, "reassign", "start", "slow", *larger, "--throttle", "50000000", "--wait")
    assert [row["topic"] for row in again["moved"]] == ["slow"]
    assert answer(cluster, "describe", "slow")["configuration"] == {}
    assert answer(cluster, "describe", "slow")["partitions"][0]["out_of_sync"] == []
    a_topic_that_moves_is_marked_for_deletion(cluster, monkeypatch)


def a_topic_that_moves_is_marked_for_deletion(cluster: DevCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has moved."""
    monkeypatch.setattr(topics, "DELETION_SECONDS_MAX", 1.0)
    here = ("--bootstrap", cluster.bootstrap)
    headrace("topics", "reassign", "start", "slow", "--replication-factor", "1", *here)
    headrace("topics", "reassign", "start", "slow", "--replication-factor", "3", "--throttle", "50000", *here)
    assert (
        headrace("topics", "describe", "slow", *here, "--json").stdout.count('"marked_for_deletion": false')
        == 1
    )
    deleted = headrace("topics", "delete", "slow", *here)
    assert (deleted.returncode, deleted.stderr.splitlines()) == (
        1,
        [
            "slow goes once its partitions have moved (slow-0): headrace topics reassign show",
            "Error: slow is marked for deletion, and still there after 1 s: "
            "`headrace topics reassign show` shows the partitions that it waits for.",
        ],
    )
    listed = headrace("topics", "list", *here).stdout.splitlines()
    assert [line.split()[0] for line in listed if "marked for deletion" in line] == ["slow"]
    described = headrace("topics", "describe", "slow", *here).stdout
    assert described.startswith("marked for deletion: it goes once its partitions have moved")


def another_order_has_other_leaders(cluster: DevCluster, folder: Path) -> None:
    """The first replicas lead, in their time."""
    plan_file = folder / "order.json"
    wanted = {number: found[::-1] for number, (found, _) in replicas(cluster).items()}
    order = [{"topic": "moved", "partition": number, "replicas": r} for number, r in wanted.items()]
    plan_file.write_text(json.dumps({"version": 1, "partitions": order}))
    answer(cluster, "reassign", "start", "--plan", str(plan_file), "--wait")

    def lead() -> bool:
        found = answer(cluster, "describe", "moved")["partitions"]
        return [p["leader"] for p in found] == [wanted[number][0] for number in sorted(wanted)]

    eventually(lead, what="the first replicas as leaders")


def move_to_a_broker_that_hangs(cluster: DevCluster, folder: Path) -> None:
    """What waits is shown, until it is cancelled."""
    controller = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).controller_id
    (hanging, *_) = {2, 3} - {controller}
    serving = ",".join(f"{h}:{p}" for b, (h, p) in enumerate(cluster.addresses, 1) if b != hanging)
    partition, (before, _) = next(item for item in replicas(cluster).items() if item[1][0] != [hanging])
    wish = [{"topic": "moved", "partition": partition, "replicas": [*before, hanging]}]
    plan_file = folder / "wish.json"
    plan_file.write_text(json.dumps({"version": 1, "partitions": wish}))
    process = cluster.broker_process(hanging)
    process.suspend()
    try:
        answer(serving, "reassign", "start", "--plan", str(plan_file))
        (row,) = answer(serving, "reassign", "show")["moving"]
        assert (row["from"], row["to"], row["waits for"]) == (before, [*before, hanging], [hanging])
        assert "out of sync" in run(serving, "describe", "moved").stdout
        answer(serving, "reassign", "cancel", "moved")
        assert answer(serving, "reassign", "show") == {"moving": [], "throttle_removed": []}
    finally:
        process.resume()
    again = run(serving, "reassign", "start", "moved", "--brokers", "77")
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "broker 77 is not alive" in again.stderr


def read(cluster: DevCluster, count: int) -> set[str]:
    """All messages of `moved`; each is there once."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["moved"])
    found: list[str] = []

    def has_all() -> bool:
        found.extend((m.value() or b"").decode() for m in consumer.consume(1000, 0.5) if m.error() is None)
        return len(found) >= count

    eventually(has_all, what="all messages")
    consumer.close()
    assert len(found) == count
    return set(found)
