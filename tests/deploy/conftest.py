"""A copy of inventory/local on loopback addresses of its own, so that no kept pipeline is in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import demo_process
import pytest
from demo_process import DemoProcess
from odd_demo import environment_of

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


@pytest.fixture(scope="session", autouse=True)
def terraform_folder_stays_as_it_is() -> Iterator[None]:
    """Terraform works on copies: its lock files, plugins and states would be new files of the checkout."""

    def files() -> set[Path]:
        return {path for path in (CHECKOUT / "terraform").rglob("*") if path.is_file()}

    before = files()
    yield
    assert files() == before


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """An inventory to break; nothing of it is rolled out."""
    return copy_of_local(tmp_path, network=76)


@pytest.fixture
def checked_in(tmp_path: Path) -> Callable[[str], Deployment]:
    """The checkout's own inventory of that name, to look at."""
    return lambda name: Deployment(inventory=CHECKOUT / "inventory" / name, root=tmp_path / "var")


@pytest.fixture(scope="module")
def pipeline(
    alone: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, DemoProcess]]:
    """A pipeline of real processes that a demo rolls out, leaves running and is followed by; gone at the module's end."""
    directory = tmp_path_factory.mktemp("deploy")
    deployment = copy_of_local(directory, network=77)
    two_releases(deployment)
    environment = environment_of(directory) | {"DEMO_KEEP": "1"}
    try:
        with DemoProcess(directory, inventory=deployment.inventory, environment=environment) as demo:
            yield deployment, demo
    finally:
        if (deployment.root / "supervisor.sock").exists():
            result = deployment.play("down.yml")
            assert result.returncode == 0, result.stdout[-8000:]


@pytest.fixture
def rolled_out(pipeline: tuple[Deployment, DemoProcess]) -> Deployment:
    """The pipeline once its demo is over."""
    deployment, demo = pipeline
    assert demo.wait() == 0, demo.text()
    return deployment
