"""Restarts, reloads and drains on hosts while a front end publishes from HAProxy's address.

Nothing fails, nothing is cut off, and never two brokers of a datacenter are down at once. One session, in this order: each test
leaves the lab whole.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from lab_kit import BOOTSTRAP, CHECKOUT, INVENTORY, PROGRAMS, Lab, Traffic, Watch

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1500)]
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
EASTERN = {f"dc-east-broker-{number}": f"headrace-broker-{number}" for number in (1, 2, 3)}
HAPROXY = ("dc-east-haproxy-1", "headrace-haproxy")
REASON = {"drain_reason": "its disk is replaced", "drain_by": "ana"}


@contextmanager
def front_end(address: str = BOOTSTRAP) -> Iterator[socket.socket]:
    """A connection through HAProxy over which a broker answers, before and after what is done meanwhile."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        assert serves(connection)
        yield connection
        assert serves(connection)


def serves(connection: socket.socket) -> bool:
    connection.sendall(API_VERSIONS)
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return len(connection.recv(size, socket.MSG_WAITALL)) == int(size)


def restarted(output: str) -> list[str]:
    """The hosts that something was changed on, in their order."""
    return re.findall(r"^changed: \[([^\]]+)\]", output, re.MULTILINE)


def test_haproxy_is_changed_by_a_reload_that_cuts_no_connection(rolled_out: Lab, traffic: Traffic) -> None:
    before = rolled_out.process_id(*HAPROXY)
    with front_end() as connection:
        change = rolled_out.play("site.yml", "--limit", HAPROXY[0], "-e", "haproxy_hard_stop_after=11h")
        assert change.returncode == 0, change.output[-6000:]
        assert change.changed() == {HAPROXY[0]: 1}
        assert serves(connection)
        again = rolled_out.play("rolling_restart.yml", "--limit", HAPROXY[0])
        assert again.returncode == 0, again.output[-6000:]
        assert restarted(again.output) == [HAPROXY[0]]
        assert serves(connection)
        back = rolled_out.play("site.yml", "--limit", HAPROXY[0])
        assert back.changed() == {HAPROXY[0]: 1}
    assert rolled_out.process_id(*HAPROXY) == before
    assert rolled_out.play("site.yml", "--limit", HAPROXY[0]).changed() == {}
    assert traffic.moves()


@pytest.mark.long
def test_a_reload_that_does_not_work_is_still_to_be_made(rolled_out: Lab) -> None:
    """The file on the host is what was wanted, but nobody loaded it."""
    change = ("--limit", HAPROXY[0], "-e", "haproxy_hard_stop_after=11h")
    file = "/etc/headrace/headrace-haproxy/haproxy.cfg"
    written = rolled_out.play("site.yml", *change)
    assert written.returncode == 0, written.output[-6000:]
    content = rolled_out.on(HAPROXY[0], "cat", file)
    assert rolled_out.play("site.yml", "--limit", HAPROXY[0]).returncode == 0
    rolled_out.on(HAPROXY[0], "sh", "-c", f'printf "%s" "$1" >{file}', "sh", content)
    assert rolled_out.play("site.yml", *change).changed() == {HAPROXY[0]: 1}
    assert rolled_out.play("site.yml", "--limit", HAPROXY[0]).returncode == 0


@pytest.mark.long
def test_a_rolling_restart_of_a_datacenter_is_seen_by_no_front_end(rolled_out: Lab, traffic: Traffic) -> None:
    services = [(host, name) for host in rolled_out.hosts for name in rolled_out.services(host)]
    before = {place: rolled_out.process_id(*place) for place in services}
    with Watch() as watch:
        played = rolled_out.play("rolling_restart.yml", "--limit", "dc_east")
    assert played.returncode == 0, played.output[-6000:]
    assert watch.down_together_max == {"dc-east": 1, "offline": 0}
    turns = list(dict.fromkeys(restarted(played.output)))
    assert turns[0] == "dc-east-zookeeper-1"
    assert set(turns[1:4]) == set(EASTERN)
    assert turns[4:] == ["dc-east-haproxy-1", "dc-east-services-1"]
    after = {place: rolled_out.process_id(*place) for place in services}
    same = {host for host, name in services if before[host, name] == after[host, name]}
    # HAProxy's first process stays; the offline datacenter was not meant.
    assert same == {host for host in rolled_out.hosts if host.startswith("offline-")} | {HAPROXY[0]}
    assert traffic.moves()


@pytest.mark.long
def test_a_change_of_zookeeper_is_seen_by_no_front_end(rolled_out: Lab, traffic: Traffic) -> None:
    limit = ("--limit", "dc-east-zookeeper-1")
    change = ("-e", json.dumps({"zookeeper_properties": {"globalOutstandingLimit": 900}}))
    with Watch() as watch:
        played = rolled_out.play("site.yml", *limit, *change)
        assert played.returncode == 0, played.output[-6000:]
        assert set(played.changed()) == {"dc-east-zookeeper-1"}
        assert set(rolled_out.play("site.yml", *limit).changed()) == {"dc-east-zookeeper-1"}
    assert max(watch.down_together_max.values()) == 0
    assert traffic.moves()


@pytest.mark.long
def test_a_drained_broker_stays_down_through_roll_outs_and_a_boot(rolled_out: Lab, traffic: Traffic) -> None:
    host, service = "dc-east-broker-2", "headrace-broker-2"
    drained = rolled_out.play("drain.yml", "--limit", host, "-e", json.dumps(REASON))
    assert drained.returncode == 0, drained.output[-6000:]
    assert rolled_out.play("drain.yml", "--limit", host, "-e", json.dumps(REASON)).changed() == {}
    rolled_out.reboot(host)
    said = f"{host} is drained since "
    rolled = rolled_out.play("site.yml", "--limit", "dc_east")
    assert rolled.returncode == 0, rolled.output[-6000:]
    assert rolled.changed() == {}
    assert " ".join(rolled.output.split()).count(said) == 1
    assert not rolled_out.is_active(host, service)

    # With one of three away, none of the others may go; what is no broker's is not held up.
    held = rolled_out.play(
        "rolling_restart.yml", "--limit", "dc-east-broker-1", "--tags", "broker", "-e", "gate_timeout_s=0"
    )
    assert held.returncode != 0
    assert "fall below min.insync.replicas" in held.output
    free = rolled_out.play(
        "rolling_restart.yml", "--limit", "dc_east", "--tags", "zookeeper,haproxy", "-e", "gate_timeout_s=120"
    )
    assert free.returncode == 0, free.output[-6000:]
    status = subprocess.run(
        [PROGRAMS / "fab", "status", "--inventory", INVENTORY],
        cwd=CHECKOUT,
        env=rolled_out.environment(rolled_out.folder / "fab.runs"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{said}" in status.stdout
    assert "by ana: its disk is replaced" in status.stdout
    assert not rolled_out.is_active(host, service)

    restored = rolled_out.play("restore.yml", "--limit", host)
    assert restored.returncode == 0, restored.output[-6000:]
    assert rolled_out.is_active(host, service)
    assert said not in " ".join(rolled_out.play("site.yml", "--limit", host).output.split())
    assert traffic.moves()


@pytest.mark.long
def test_no_front_end_saw_any_of_it(rolled_out: Lab, traffic: Traffic) -> None:
    published = traffic.stop()
    assert (published["failed"], published["unknown"]) == (0, 0)
    rolled_out.wait_until_complete(published["acknowledged"])
