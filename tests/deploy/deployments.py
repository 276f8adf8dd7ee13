"""An inventory that a test rolls out: a copy of inventory/local on loopback addresses of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import demo_process

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent


@dataclass(frozen=True)
class Deployment:
    """An inventory and the folder that it is rolled out in."""

    inventory: Path
    root: Path

    def play(self, playbook: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(playbook, *arguments),
            cwd=CHECKOUT,
            env={**self.environment(), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def command(self, playbook: str, *arguments: str) -> list[str]:
        command = [str(PROGRAMS / "ansible-playbook"), "-i", str(self.inventory), f"playbooks/{playbook}"]
        own = ("-e", f"headrace_root={self.root}", "-e", "headrace_support_bundle=false")
        return [*command, *own, *arguments]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}

    def edit(self, before: str, after: str) -> None:
        """Replace a text that the inventory's hosts.yml has."""
        hosts = self.inventory / "hosts.yml"
        text = hosts.read_text(encoding="utf-8")
        assert before in text, before
        hosts.write_text(text.replace(before, after), encoding="utf-8")


def two_releases(deployment: Deployment) -> None:
    """Give the inventory two releases, beside its root, both of them this checkout's, and `current` that names the first."""
    folder = deployment.root.parent
    for name in ("release-1", "release-2"):
        (folder / name / "bin").mkdir(parents=True)
        for program in PROGRAMS.iterdir():
            (folder / name / "bin" / program.name).symlink_to(program)
        for entry in ("lib", "pyvenv.cfg"):
            (folder / name / entry).symlink_to(PROGRAMS.parent / entry)
    (folder / "current").symlink_to("release-1")
    variables = deployment.inventory / "group_vars" / "all.yml"
    text = variables.read_text(encoding="utf-8")
    checkouts = 'headrace_bin_dir: "{{ ansible_playbook_python | dirname }}"'
    assert checkouts in text
    variables.write_text(text.replace(checkouts, f"headrace_bin_dir: {folder}/current/bin"), encoding="utf-8")


def copy_of_local(directory: Path, network: int) -> Deployment:
    inventory = demo_process.copy_of_local(directory, network)
    return Deployment(inventory=inventory, root=directory / "var")
