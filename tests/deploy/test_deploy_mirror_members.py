"""The roll-out of a mirror's members beside a cluster, by an inventory of their own: real processes under supervisord."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from demo_process import eventually, processes
from processes import DevProcess, free_port

CHECKOUT = Path(__file__).resolve().parents[2]
PLAY = [str(Path(sys.executable).with_name("ansible-playbook")), "playbooks/mirror_members.yml"]
TOPIC = "clicks"


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[dict[str, DevProcess]]:
    """Each with a ZooKeeper of its own."""
    found = {name: DevProcess(tmp_path / name) for name in ("dc-east", "target")}
    for cluster in found.values():
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(20)
    yield found
    for cluster in found.values():
        cluster.end()


def inventory(home: Path, clusters: dict[str, DevProcess], zookeeper: str, **properties: str) -> Path:
    """Two members on this machine, under a supervisord of their own."""
    root = home / "var"
    hosts = {
        f"member-{number}": {
            "headrace_address": "127.0.0.1",
            "mirror_member_id": number,
            "mirror_member_metrics_port": port,
        }
        for number, port in ((101, free_port()), (102, free_port()))
    }
    shared = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "headrace_service_manager": "supervisor",
        "headrace_datacenter": "offline",
        "headrace_root": str(root),
        **{f"headrace_{name}_dir": str(root / name) for name in ("config", "data", "log")},
        "headrace_bin_dir": str(Path(sys.executable).parent),
        "mirror_member_bootstrap_servers": [clusters["target"].bootstrap],
        "mirror_member_zookeeper_connect": zookeeper,
        "mirror_member_sources": [
            {
                "name": "dc-east",
                "bootstrap_servers": [clusters["dc-east"].bootstrap],
                "properties": {"topics": TOPIC},
            }
        ],
        "mirror_member_properties": properties,
    }
    groups = {"mirror_member": {"hosts": hosts}, "supervisor": {"hosts": {"member-101": None}}}
    path = home / "hosts.yml"
    path.write_text(yaml.safe_dump({"all": {"vars": shared, "children": groups}}))
    return path


def play(path: Path) -> str:
    done = subprocess.run(
        [*PLAY, "-i", str(path)],
        cwd=CHECKOUT,
        env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return done.stdout


def publish(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0


def count_of(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    try:
        return sum(
            int(consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=10)[1]) for p in (0, 1)
        )
    finally:
        consumer.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_members_are_rolled_out_changed_one_at_a_time_and_left_alone(
    clusters: dict[str, DevProcess], tmp_path: Path
) -> None:
    root = tmp_path / "var"
    target = clusters["target"]
    path = inventory(tmp_path, clusters, target.zookeeper)
    try:
        play(path)
        running = processes(root)
        assert set(running) == {"offline-mirror-101", "offline-mirror-102"}
        publish(clusters["dc-east"].bootstrap, 100)
        assert eventually(lambda: count_of(target.bootstrap) == 100), "what was published"
        assert "changed=0" in play(path)
        assert processes(root) == running
        inventory(tmp_path, clusters, target.zookeeper, **{"mirror.fetch.wait.max.ms": "100"})
        play(path)
        assert set(processes(root)) == set(running)
        assert not set(processes(root).values()) & set(running.values())
        publish(clusters["dc-east"].bootstrap, 100)
        assert eventually(lambda: count_of(target.bootstrap) == 200), "what was published since"
        files = list((root / "config").glob("*/mirror.secret"))
        assert len(files) == 2
        assert {file.stat().st_mode & 0o007 for file in files} == {0}
    finally:
        pid = root / "supervisor" / "supervisord.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)
            eventually(lambda: not pid.exists())
