"""Roll-out of real processes: it serves, it settles, a change restarts only what it concerns, a kill is survived."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import xmlrpc.client
from os import kill
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from demo_process import SERVICES, eventually, processes
from supervisor.xmlrpc import SupervisorTransport

PROGRAMS = Path(sys.executable).parent


def supervisorctl(deployment: Any, *arguments: str) -> None:
    config = deployment.root / "supervisor" / "supervisord.conf"
    subprocess.run([PROGRAMS / "supervisorctl", "-c", config, *arguments], check=True, capture_output=True)


class Watch:
    """Looks at some services all the time and keeps how many of them were down together at most."""

    def __init__(self, deployment: Any, names: set[str]) -> None:
        socket_path = deployment.root / "supervisor.sock"
        transport = SupervisorTransport(None, None, f"unix://{socket_path}")
        self._supervisor = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport).supervisor
        self._names = names
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.down_together_max = 0

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            states = {info["name"]: info["statename"] for info in self._supervisor.getAllProcessInfo()}
            down = sum(states[name] != "RUNNING" for name in self._names)
            self.down_together_max = max(self.down_together_max, down)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and that nobody has waited for yet has no command line."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


def changed_hosts(output: str) -> dict[str, int]:
    """How many changes each host reports, for those with any."""
    return {
        host: int(n)
        for host, n in re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", output, re.MULTILINE)
        if int(n)
    }


def brokers_behind(bootstrap: str) -> set[int]:
    """The brokers that a client learns of when it starts from that address."""
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).brokers)


def test_every_service_runs_and_a_second_run_changes_nothing(rolled_out: Any) -> None:
    before = processes(rolled_out.root)
    assert set(before) == SERVICES

    again = rolled_out.play("site.yml")
    assert again.returncode == 0, again.stdout[-4000:]
    assert changed_hosts(again.stdout) == {}
    checked = rolled_out.play("site.yml", "--check", "--diff")
    assert checked.returncode == 0, checked.stdout[-4000:]
    assert changed_hosts(checked.stdout) == {}

    assert processes(rolled_out.root) == before


def test_the_topics_have_the_partitions_of_the_inventory(rolled_out: Any) -> None:
    topics = AdminClient({"bootstrap.servers": "127.77.2.100:9092"}).list_topics(timeout=20).topics
    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    expected = {
        "pageviews": 4,
        "pageviews.rejected": 1,
        "headrace.monitoring": 1,
        "headrace.counts": 1,
        "_schemas": 1,
    }
    assert {name: counts.get(name) for name in expected} == expected


def test_clients_start_from_haproxy_while_one_broker_behind_it_is_stopped(rolled_out: Any) -> None:
    assert brokers_behind("127.77.1.100:9092") == {1, 2}
    for stopped, left in ((1, 2), (2, 1)):
        supervisorctl(rolled_out, "stop", f"dc-east-broker-{stopped}")
        try:
            assert eventually(lambda left=left: brokers_behind("127.77.1.100:9092") == {left})
        finally:
            supervisorctl(rolled_out, "start", f"dc-east-broker-{stopped}")
        assert eventually(lambda: brokers_behind("127.77.1.100:9092") == {1, 2})


def test_a_killed_service_comes_back_as_another_process(rolled_out: Any) -> None:
    before = processes(rolled_out.root)
    victims = ("dc-west-broker-2", "dc-west-registry", "dc-west-haproxy", "dc-west-zookeeper-1")
    for victim in victims:
        kill(before[victim], signal.SIGKILL)
    assert eventually(lambda: set(processes(rolled_out.root)) == SERVICES)
    after = processes(rolled_out.root)
    assert all(after[victim] != before[victim] for victim in victims)
    assert eventually(lambda: brokers_behind("127.77.2.100:9092") == {1, 2})


def test_a_change_restarts_only_what_it_concerns_one_host_at_a_time(rolled_out: Any) -> None:
    before = processes(rolled_out.root)
    brokers = {name for name in SERVICES if "-broker-" in name}
    change = json.dumps({"broker_properties": {"num.partitions": 3, "offsets.topic.replication.factor": 1}})

    checked = rolled_out.play("site.yml", "--check", "--diff", "--limit", "broker", "-e", change)
    assert checked.returncode == 0, checked.stdout[-4000:]
    assert "+num.partitions=3" in checked.stdout
    assert {name: processes(rolled_out.root).get(name) for name in brokers} == {
        name: before[name] for name in brokers
    }

    with Watch(rolled_out, brokers) as watch:
        changed = rolled_out.play("site.yml", "-e", change)
    assert changed.returncode == 0, changed.stdout[-4000:]
    assert set(changed_hosts(changed.stdout)) == brokers
    after = processes(rolled_out.root)
    assert not [name for name in brokers if after.get(name) == before[name]]
    assert watch.down_together_max == 1


def test_a_service_that_does_not_start_is_named_with_its_log(rolled_out: Any) -> None:
    wrong = json.dumps({"haproxy_executable": "/bin/false"})
    result = rolled_out.play(
        "site.yml", "-e", wrong, "-e", "service_timeout_s=5", "--limit", "dc-east-haproxy-1"
    )
    assert result.returncode != 0
    assert (
        "haproxy.cfg was not replaced" in result.stdout or "dc-east-haproxy does not serve" in result.stdout
    )


def test_down_stops_everything_and_removes_only_what_was_asked_for(rolled_out: Any) -> None:
    supervisord = int((rolled_out.root / "supervisor" / "supervisord.pid").read_text())
    pids = [supervisord, *processes(rolled_out.root).values()]

    assert rolled_out.play("down.yml").returncode == 0
    assert not [pid for pid in pids if is_alive(pid)]
    assert (rolled_out.root / "data" / "dc-east-broker-1").is_dir()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.77.1.100", 9092), timeout=2)

    again = rolled_out.play("down.yml")
    assert changed_hosts(again.stdout) == {}

    assert rolled_out.play("down.yml", "-e", "headrace_remove_data=true").returncode == 0
    assert not (rolled_out.root / "data").exists()
    assert (rolled_out.root / "config").is_dir()
    assert (rolled_out.root / "log").is_dir()
