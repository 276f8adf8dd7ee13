"""What the services of a machine need together."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from inventory_kit import good_inventory

from headrace_inventory.needs import haproxy_open_files, needs

HAPROXY = Path("/usr/sbin/haproxy")
CONFIG = """
global
    maxconn {connections}
    nbthread {threads}
defaults
    mode tcp
    timeout connect 2s
    timeout client 10m
    timeout server 10m
frontend bootstrap
    bind 192.0.2.1:1
    default_backend brokers
backend brokers
    default-server check
    server b1 127.0.0.1:1
    server b2 127.0.0.1:1
    server b3 127.0.0.1:1
"""


def test_a_machine_needs_what_all_of_its_services_do() -> None:
    groups, hostvars = good_inventory()
    for variables in hostvars.values():
        variables["headrace_data_dir"] = "/data"
    groups["haproxy"] = ["east-broker-1"]
    hostvars["east-broker-1"]["haproxy_connections_max"] = 1000
    hostvars["east-zookeeper-1"] |= {"zookeeper_heap_mb": 512, "zookeeper_jars_dir": "/jars"}
    found = needs(["east-broker-1", "east-zookeeper-1"], hostvars, groups)
    assert found["memory_mb"] == 40 + 100 + 64 + 512
    assert found["disk"] == {"/data/headrace-broker-1": 256, "/data/headrace-zookeeper-1": 128}
    assert {need["service"]: need["count"] for need in found["open_files"]} == {
        "headrace-haproxy": 2256,
        "headrace-broker-1": 4096,
    }
    assert (found["jars"], found["python"]) == (["/jars"], True)
    assert needs(["east-zookeeper-1"], hostvars, groups)["python"] is False
    offline = needs(["off-audit-1"], hostvars, groups)
    assert (offline["memory_mb"], offline["disk"]) == (
        60 + 150,
        {"/data/headrace-auditor": 128},
    )


@pytest.mark.skipif(not HAPROXY.exists(), reason="HAProxy is not installed")
def test_haproxy_starts_with_as_many_open_files_and_not_with_a_connection_more(tmp_path: Path) -> None:
    """It says what it lacks and ends, which a service manager makes a loop of."""
    connections = 100

    def said(limit: int, threads: int) -> str:
        file = tmp_path / "haproxy.cfg"
        file.write_text(CONFIG.format(connections=connections, threads=threads))
        command = f"ulimit -n {limit}; exec {HAPROXY} -db -f {file}"
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False).stderr

    # The address is nobody's, so that it ends in either case, but after its look at the limit.
    assert "Cannot raise FD limit" in said(2 * connections, threads=1)
    enough = said(haproxy_open_files(connections), threads=64)
    assert "FD limit" not in enough
    assert "cannot bind socket" in enough
