"""The commands of docs/rollout.md do what the page says, in a folder that looks like a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def checkout_on_other_addresses(folder: Path) -> None:
    for name in ("playbooks", "ansible.cfg", ".venv"):
        (folder / name).symlink_to(CHECKOUT / name)
    shutil.copy(CHECKOUT / "fabfile.py", folder)
    shutil.copytree(CHECKOUT / "inventory" / "local", folder / "inventory" / "local")
    hosts = folder / "inventory" / "local" / "hosts.yml"
    hosts.write_text(hosts.read_text(encoding="utf-8").replace("127.0.", "127.78."), encoding="utf-8")


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    checkout_on_other_addresses(tmp_path)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = CHECKOUT / "tests" / "deploy" / "rollout_page.sh"
    try:
        result = subprocess.run(
            ["bash", "-x", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    finally:
        down = ["ansible-playbook", "-i", "inventory/local", "playbooks/down.yml"]
        subprocess.run(down, cwd=tmp_path, env=environment, check=True, capture_output=True)
