"""The large lab: three datacenters, one of them with an ensemble and two load balancers, and a topic that both live ones share.

A host of each kind dies while front ends of both publish, and all they published is in the warehouse and in that topic, once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_kit import CHECKOUT, PROGRAMS, Lab, eventually

from lab import engine
from lab.command import listing
from lab.topology import topology_of

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1800)]
INVENTORY = "inventory/docker"
EVENTS, A_SECOND = 20_000, 500
BOOTSTRAP = {"dc-east": "10.77.1.100:9092,10.77.1.101:9092", "dc-west": "10.77.2.100:9092"}
REGISTRIES = {"dc-east": "http://10.77.1.21:8081", "dc-west": "http://10.77.2.21:8081"}
ENSEMBLE = {f"dc-east-zookeeper-{number}": f"10.77.1.1{number}" for number in (1, 2, 3)}
AGGREGATE = ("-e", json.dumps({"headrace_aggregate_topics": ["pageviews"]}))


def command(verb: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "lab", verb, *arguments], cwd=CHECKOUT, check=True)


@pytest.fixture(scope="module")
def large_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Up, and rolled out from nothing; the small one is gone by then."""
    command("down")
    command("up", "--inventory", INVENTORY)
    docker = engine.running()
    assert docker is not None
    hosts = [host.name for host in topology_of(listing(INVENTORY)).hosts if not host.is_router]
    lab = Lab(docker=docker, folder=tmp_path_factory.mktemp("large"), hosts=hosts, inventory=INVENTORY)
    try:
        lab.first = lab.play("site.yml", *AGGREGATE)
        assert lab.first.returncode == 0, lab.first.output[-6000:]
        yield lab
    finally:
        command("down")


def front_end(datacenter: str, result: Path) -> subprocess.Popen[bytes]:
    """Publishes from there, as `headrace replay` does; leaves what became of it, and beside that how far it is."""
    where = ["--bootstrap", BOOTSTRAP[datacenter], "--registry", REGISTRIES[datacenter]]
    log = [
        "--log",
        str(CHECKOUT / "examples" / "access.log"),
        "--events",
        str(EVENTS),
        "--rate",
        str(A_SECOND),
    ]
    replay = [
        str(PROGRAMS / "headrace"),
        "replay",
        "--json",
        "--progress",
        "--datacenter",
        datacenter,
        *where,
        *log,
    ]
    with result.open("wb") as stdout, progress_of(result).open("wb") as stderr:
        return subprocess.Popen(replay, stdout=stdout, stderr=stderr)


def progress_of(result: Path) -> Path:
    return result.with_suffix(".progress")


def leader_of_the_ensemble(lab: Lab) -> str:
    ask = "exec 3<>/dev/tcp/{}/2181; echo srvr >&3; cat <&3"
    (leader,) = [
        host
        for host, address in ENSEMBLE.items()
        if "Mode: leader" in lab.on(host, "bash", "-c", ask.format(address))
    ]
    return leader


def test_hosts_of_each_kind_die_and_all_is_in_the_warehouse_and_in_the_shared_topic_once(
    large_lab: Lab, tmp_path: Path
) -> None:
    results = {datacenter: tmp_path / datacenter for datacenter in BOOTSTRAP}
    dying = ["dc-east-haproxy-1", leader_of_the_ensemble(large_lab), "dc-west-broker-2", "offline-broker-3"]
    front_ends = [front_end(datacenter, result) for datacenter, result in results.items()]
    try:
        assert eventually(
            lambda: all("events published" in progress_of(each).read_text() for each in results.values())
        )
        for host in dying:
            large_lab.docker.run("kill", host)
        assert [each.wait(timeout=300) for each in front_ends] == [0, 0]
    finally:
        for each in front_ends:
            each.kill()
        large_lab.docker.run("start", *dying, timeout_s=120)
    for result in results.values():
        told = json.loads(result.read_text())
        assert (told["acknowledged"], told["failed"], told["unknown"]) == (EVENTS, 0, 0)
    large_lab.wait_until_complete(EVENTS * len(results))
    shared = {row["datacenter"]: row for row in large_lab.report()["aggregate_topics"]}
    assert set(shared) == set(BOOTSTRAP)
    assert {(row["topic"], row["live"], row["aggregate"]) for row in shared.values()} == {
        ("pageviews", EVENTS, EVENTS)
    }
    assert eventually(lambda: large_lab.play("health.yml", *AGGREGATE).returncode == 0)


def test_a_second_roll_out_changes_nothing(large_lab: Lab) -> None:
    again = large_lab.play("site.yml", *AGGREGATE)
    assert again.returncode == 0, again.output[-6000:]
    assert again.changed() == {}
