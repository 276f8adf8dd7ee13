"""inventory/example as a user copies it, with twelve hosts of one's own: checked on bare hosts, rolled out, and at rest."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab_kit import CHECKOUT, INVENTORY, Lab

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1800)]
EXAMPLE = CHECKOUT / "inventory" / "example"
# With twelve hosts for sixteen names, some run two services. Each name has the address of its host.
HOSTS = {
    "zk-1.east.example.com": ("dc-east-zookeeper-1", "10.77.1.11"),
    "zk-2.east.example.com": ("dc-east-haproxy-1", "10.77.1.100"),
    "zk-3.east.example.com": ("dc-east-services-1", "10.77.1.21"),
    "publish.east.example.com": ("dc-east-haproxy-1", "10.77.1.100"),
    "services.east.example.com": ("dc-east-services-1", "10.77.1.21"),
    "zk-1.offline.example.com": ("offline-zookeeper-1", "10.77.9.11"),
    "zk-2.offline.example.com": ("offline-services-1", "10.77.9.21"),
    "zk-3.offline.example.com": ("offline-load-1", "10.77.9.31"),
    "services.offline.example.com": ("offline-services-1", "10.77.9.21"),
    "load.offline.example.com": ("offline-load-1", "10.77.9.31"),
    **{
        f"broker-{n}.{place}.example.com": (f"{name}-broker-{n}", f"10.77.{network}.{n}")
        for n in (1, 2, 3)
        for place, name, network in (("east", "dc-east", 1), ("offline", "offline", 9))
    },
}
REACHED_BY_SSH = "ansible_user: admin\nansible_become: true\n"
# What the lab needs in place of SSH, and the one setting that preflight asks for where this machine's descriptors are few.
REACHED_BY_DOCKER = """\
ansible_connection: community.docker.docker
lab_engine_socket: /run/headrace-lab/engine.sock
ansible_docker_extra_args: "{{ ('--host=unix://' ~ lab_engine_socket) if lab_engine_socket is exists else '' }}"
haproxy_connections_max: 1000
"""
# Written by systemd and by whatever logs, and not by a roll-out.
WRITTEN_ANYWAY = (
    "/var/log",
    "/var/lib/systemd",
    "/var/tmp",
    "/var/lib/chrony",
    "/root/.ansible",
    "/etc/mtab",
)


def adapted(hosts: dict[str, Any]) -> dict[str, Any]:
    """A group of the example with its names and addresses replaced; what two names of one host say is put together."""
    found: dict[str, Any] = {}
    for pattern, variables in hosts.items():
        for name in names_of(pattern):
            host, address = HOSTS[name]
            own = {**(variables or {})} | ({"headrace_address": address} if variables else {})
            found[host] = {**found.get(host, {}), **own}
    return found


def names_of(pattern: str) -> list[str]:
    if "[1:3]" not in pattern:
        return [pattern]
    return [pattern.replace("[1:3]", str(number)) for number in (1, 2, 3)]


def copy_of_the_example(folder: Path) -> Path:
    inventory = folder / "production"
    shutil.copytree(EXAMPLE, inventory)
    for tier in ("live", "offline"):
        (inventory / "group_vars" / f"{tier}.yml").write_text(
            "headrace_logins_secret: [{username: kit-1, password: c4n4ry-of-the-kit}]\n"
        )
    tree = yaml.safe_load((EXAMPLE / "hosts.yml").read_text(encoding="utf-8"))
    for group in tree["all"]["children"].values():
        if "hosts" in group:
            group["hosts"] = adapted(group["hosts"])
    (inventory / "hosts.yml").write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    variables = inventory / "group_vars" / "all.yml"
    text = variables.read_text(encoding="utf-8")
    assert REACHED_BY_SSH in text
    variables.write_text(text.replace(REACHED_BY_SSH, REACHED_BY_DOCKER), encoding="utf-8")
    return inventory


def make_bare(lab: Lab) -> None:
    """Containers as they come from their image."""
    for host in lab.hosts:
        lab.docker.run("rm", "--force", "--volumes", host)
    subprocess.run(
        [sys.executable, "-m", "lab", "up", "--inventory", INVENTORY],
        cwd=CHECKOUT,
        check=True,
        stdout=sys.stderr,
    )


@pytest.fixture(scope="module")
def lab(small_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Bare hosts with the copy of the inventory; they are bare again afterwards."""
    make_bare(small_lab)
    yield replace(small_lab, inventory=str(copy_of_the_example(tmp_path_factory.mktemp("example"))))
    make_bare(small_lab)


def written_since(lab: Lab, host: str) -> list[str]:
    found = lab.on(host, "find", "/", "-xdev", "-cnewer", "/run/before", "-not", "-type", "d").splitlines()
    return [path for path in found if not path.startswith(WRITTEN_ANYWAY) and "/__pycache__/" not in path]


def test_a_check_of_bare_hosts_changes_nothing_and_says_what_a_roll_out_would_do(lab: Lab) -> None:
    for host in lab.hosts:
        lab.on(host, "touch", "/run/before")
    made = lab.play("certificates.yml")
    assert made.returncode == 0, made.output
    checked = lab.play("site.yml", "--check", "--diff")
    assert checked.returncode == 0, checked.output[-6000:]
    assert {host: found for host in lab.hosts if (found := written_since(lab, host))} == {}
    assert set(checked.changed()) == set(lab.hosts)
    for line in (
        "+++ after: /opt/headrace/releases/0.1.0",
        "+++ after: user",
        "+++ after: /etc/systemd/system/headrace-broker-3.service",
        "+++ after: /etc/headrace/headrace-zookeeper-2/zoo.cfg",
        "+++ after: topic pageviews",
        "+12 partitions",
    ):
        assert line in checked.output, line


def test_the_example_is_rolled_out_and_settles(lab: Lab) -> None:
    first = lab.play("site.yml")
    assert first.returncode == 0, first.output[-6000:]
    assert {service for host in lab.hosts for service in lab.services(host)} == {
        *(f"headrace-{kind}-{number}" for kind in ("broker", "zookeeper") for number in (1, 2, 3)),
        *(f"headrace-{kind}" for kind in ("haproxy", "registry", "counter", "auditor", "load")),
    }
    second = lab.play("site.yml", "--diff")
    assert second.returncode == 0, second.output[-6000:]
    assert second.changed() == {}, second.output[-6000:]
    status = [f"/opt/headrace/releases/{lab.version()}/bin/headrace", "cluster", "status"]
    # It is secured: the kit's own log-in is let in, and who has none is not.
    logged_in = ("--command-config", "/etc/headrace/headrace-broker-1/client.secret")
    for broker, bootstrap in (("dc-east-broker-1", "10.77.1.1:9094"), ("offline-broker-1", "10.77.9.1:9094")):
        assert lab.asked(broker, *status, "--bootstrap", bootstrap, *logged_in).returncode == 0
        assert lab.asked(broker, *status, "--bootstrap", bootstrap).returncode != 0
