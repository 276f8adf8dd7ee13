"""A host with nothing but systemd and Python: the role `machine` installs what its groups need from the system's own packages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lab_kit import CHECKOUT, INVENTORY, Lab

from lab import containers, image
from lab.docker import Docker

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1200)]
NAME = "lab-machine"
# Three hosts of the inventory are this one container, which takes no other address than these.
HOSTS = {
    "dc-east-zookeeper-1": ("10.77.1.11", "127.99.0.1"),
    "dc-east-haproxy-1": ("10.77.1.100", "127.99.0.2"),
    "dc-east-broker-1": ("10.77.1.1,", "127.99.0.3,"),
}
PACKAGES = ("chrony", "haproxy", "openjdk-17-jre-headless", "python3-venv", "python3.11-venv")
PLAY = [{"hosts": "release", "gather_facts": False, "roles": ["machine"]}]
# A mirror may be an old day's.
APT = 'Acquire::Check-Valid-Until "false"; Acquire::Check-Date "false";\n'


def start(docker: Docker) -> None:
    """A container beside the lab's, with this machine's own road to the packages and no right over its network."""
    flags = [flag for flag in containers.FLAGS if flag != "NET_ADMIN"]
    flags.pop(len(flags) - flags[::-1].index("--cap-add") - 1)
    if "apparmor" in docker.run("info", "--format", "{{.SecurityOptions}}"):
        flags += containers.APPARMOR_FLAGS
    named = ("--name", NAME, "--hostname", NAME, "--network", "host")
    docker.run("create", *named, *flags, image.image_name(), *containers.BOOT)
    docker.run("start", NAME)
    containers.wait_until_up(docker, [NAME])
    docker.run("exec", NAME, "apt-get", "purge", "-y", "-q", *PACKAGES, timeout_s=120)
    docker.run("exec", NAME, "sh", "-c", f"printf '%s' '{APT}' >/etc/apt/apt.conf.d/99lab")


@pytest.fixture
def host(small_lab: Lab, tmp_path: Path) -> Iterator[Lab]:
    """The container, as three hosts of an inventory, without what they need."""
    inventory = tmp_path / "inventory"
    shutil.copytree(CHECKOUT / INVENTORY, inventory)
    hosts = inventory / "hosts.yml"
    text = hosts.read_text(encoding="utf-8")
    for address, own in HOSTS.values():
        assert f"headrace_address: {address}" in text
        text = text.replace(f"headrace_address: {address}", f"ansible_host: {NAME}, headrace_address: {own}")
    hosts.write_text(text, encoding="utf-8")
    docker = small_lab.docker
    docker.ask("rm", "--force", "--volumes", NAME)
    try:
        start(docker)
        yield replace(small_lab, inventory=str(inventory), folder=tmp_path)
    finally:
        docker.run("rm", "--force", "--volumes", NAME)


def test_what_is_missing_is_asked_for_or_installed(host: Lab, tmp_path: Path) -> None:
    only = ("--limit", ",".join(HOSTS), "--forks", "1")
    asked = host.play("preflight.yml", *only, "-e", "machine_packages=false")
    assert asked.returncode != 0
    for sentence in (
        f"The program java is not installed on {NAME}: install it (apt-get install openjdk-17-jre-headless).",
        f"The program haproxy is not installed on {NAME}: install it (apt-get install haproxy).",
        f"release_python, python3 on {NAME}, makes no virtual environments: install it (apt-get install python3-venv).",
    ):
        assert sentence in asked.output
    accepted = host.play("preflight.yml", *only, "-e", "machine_packages=true")
    assert accepted.returncode == 0, accepted.output[-6000:]

    play = tmp_path / "machine.yml"
    play.write_text(json.dumps(PLAY), encoding="utf-8")
    prepare = (str(play), *only, "-e", "machine_packages=true", "--diff")
    checked = host.play(*prepare, "--check")
    assert checked.returncode == 0, checked.output[-6000:]
    assert "+openjdk-17-jre-headless" in checked.output
    installed = host.play(*prepare)
    assert installed.returncode == 0, installed.output[-6000:]
    assert host.play(*prepare).changed() == {}

    settled = host.play("preflight.yml", *only, "-e", "machine_packages=false")
    assert settled.returncode == 0, settled.output[-6000:]
    assert host.asked(NAME, "systemctl", "is-enabled", "haproxy").stdout.strip() == "disabled"
    assert host.asked(NAME, "systemctl", "is-enabled", "chrony").stdout.strip() == "enabled"
