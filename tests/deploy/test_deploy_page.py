"""The commands of docs/rollout.md and docs/observability.md do what the pages say, in a folder that looks like a checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_tools import tool

CHECKOUT = Path(__file__).resolve().parents[2]


def checkout_on_other_addresses(folder: Path) -> None:
    for name in ("playbooks", "ansible.cfg", ".venv"):
        (folder / name).symlink_to(CHECKOUT / name)
    shutil.copy(CHECKOUT / "fabfile.py", folder)
    shutil.copytree(CHECKOUT / "inventory" / "local", folder / "inventory" / "local")
    hosts = folder / "inventory" / "local" / "hosts.yml"
    hosts.write_text(hosts.read_text(encoding="utf-8").replace("127.0.", "127.78."), encoding="utf-8")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A scratch folder with a short path, which supervisor's socket needs."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as name:
        yield Path(name)


@pytest.mark.long
def test_the_commands_of_the_page_work(alone: None, folder: Path) -> None:
    checkout_on_other_addresses(folder)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = CHECKOUT / "tests" / "deploy" / "rollout_page.sh"
    try:
        result = subprocess.run(
            ["bash", "-x", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    finally:
        down = ["ansible-playbook", "-i", "inventory/local", "playbooks/down.yml"]
        subprocess.run(down, cwd=folder, env=environment, check=True, capture_output=True)


@pytest.mark.acceptance
def test_prometheus_is_configured_from_the_inventory(folder: Path) -> None:
    tool("promtool")
    checkout_on_other_addresses(folder)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = CHECKOUT / "tests" / "deploy" / "observability_page.sh"
    result = subprocess.run(
        ["bash", "-x", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    targets = json.loads((folder / "var" / "prometheus" / "local" / "targets.json").read_text())
    assert {"127.78.3.14:9404", "127.78.1.12:8081"} <= {each["targets"][0] for each in targets}
