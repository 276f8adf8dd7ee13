"""The roll-out of a mirror's members beside a cluster, by an inventory of their own: real processes under supervisord."""

from __future__ import annotations

import os
import re
import signal
import socket
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
ANSIBLE = str(Path(sys.executable).with_name("ansible-playbook"))
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


def inventory(home: Path, bootstrap: str, source: str, zookeeper: str, **properties: str) -> Path:
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
        "headrace_machine": "member-101",
        "headrace_datacenter": "offline",
        "headrace_root": str(root),
        **{f"headrace_{name}_dir": str(root / name) for name in ("config", "data", "log")},
        "headrace_bin_dir": str(Path(sys.executable).parent),
        "mirror_member_bootstrap_servers": [bootstrap],
        "mirror_member_zookeeper_connect": zookeeper,
        "mirror_member_sources": [
            {
                "name": "dc-east",
                "bootstrap_servers": [source],
                "properties": {"topics": TOPIC},
            }
        ],
        "mirror_member_properties": properties,
    }
    groups = {
        "mirror_member": {"hosts": hosts},
        **{name: {"hosts": {"member-101": None}} for name in ("machine", "supervisor")},
    }
    path = home / "hosts.yml"
    path.write_text(yaml.safe_dump({"all": {"vars": shared, "children": groups}}))
    return path


def run(playbook: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            ANSIBLE,
            f"playbooks/{playbook}",
            "-i",
            str(path),
            "-e",
            "headrace_support_bundle=false",
            *arguments,
        ],
        cwd=CHECKOUT,
        env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def play(path: Path) -> str:
    done = run("mirror_members.yml", path)
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
    source = clusters["dc-east"].bootstrap
    path = inventory(tmp_path, target.bootstrap, source, target.zookeeper)
    try:
        play(path)
        running = processes(root)
        assert set(running) == {"offline-mirror-101", "offline-mirror-102"}
        publish(clusters["dc-east"].bootstrap, 100)
        assert eventually(lambda: count_of(target.bootstrap) == 100), "what was published"
        assert "changed=0" in play(path)
        assert processes(root) == running
        changed = {"mirror.fetch.wait.max.ms": "100"}
        inventory(tmp_path, target.bootstrap, source, target.zookeeper, **changed)
        play(path)
        assert set(processes(root)) == set(running)
        assert not set(processes(root).values()) & set(running.values())
        publish(clusters["dc-east"].bootstrap, 100)
        assert eventually(lambda: count_of(target.bootstrap) == 200), "what was published since"
        files = list((root / "config").glob("*/mirror.secret"))
        assert len(files) == 2
        assert {file.stat().st_mode & 0o007 for file in files} == {0}
        health = run("health.yml", path)
        assert health.returncode == 0, health.stdout[-3000:]
        assert all(name in health.stdout for name in running)
        down = run("down.yml", path, "-e", "headrace_remove_config=true", "-e", "headrace_remove_logs=true")
        assert down.returncode == 0, down.stdout[-3000:]
        assert "offline-mirror-101" in down.stdout
        assert [each.name for each in root.iterdir()] == ["data"]
    finally:
        pid = root / "supervisor" / "supervisord.pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)
            eventually(lambda: not pid.exists())


@pytest.mark.acceptance
def test_all_that_members_lack_is_told_before_anything_is_changed(tmp_path: Path) -> None:
    path = inventory(tmp_path, "127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:2181", **{"mirror.fetch": "1"})
    path.write_text(path.read_text().replace("mirror_member_id: 102", "mirror_member_id: 101"))
    wrong = run("mirror_members.yml", path)
    assert wrong.returncode == 1
    for sentence in (
        "member-101 and member-102 have the same mirror_member_id 101: each needs its own.",
        "Host member-101 would get a file of which its member says: mirror.fetch=1 is not allowed",
    ):
        assert sentence in wrong.stdout
    pipeline = run("site.yml", path)
    assert pipeline.returncode == 1
    assert "roll them out with playbooks/mirror_members.yml" in pipeline.stdout
    inventory(tmp_path, "127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:2181")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        path.write_text(re.sub(r"metrics_port: \d+", f"metrics_port: {port}", path.read_text(), count=1))
        taken = run("mirror_members.yml", path)
    assert taken.returncode == 1
    assert f"offline-mirror-101 cannot listen at 127.0.0.1:{port}" in taken.stdout
    assert not (tmp_path / "var").exists()


NO_CERTIFICATES = "No host needs a certificate: brokers, ZooKeepers and registries do, where headrace_security is not plaintext."
NOT_DRAINED = "Members of a mirror are not drained: stop one with playbooks/down.yml --limit HOST"


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("playbook", "code", "sentence"),
    [
        ("certificates.yml", 0, NO_CERTIFICATES),
        ("drain.yml", 1, NOT_DRAINED),
        ("restore.yml", 1, NOT_DRAINED),
    ],
)
def test_a_play_that_is_not_for_members_says_so(
    tmp_path: Path, playbook: str, code: int, sentence: str
) -> None:
    path = inventory(tmp_path, "127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:2181")
    result = run(playbook, path, "--limit", "member-101", "-e", "drain_reason='its disk is replaced'")
    assert result.returncode == code, result.stdout + result.stderr
    assert sentence in result.stdout
    assert not (tmp_path / "var").exists()
