"""A copy of inventory/local on loopback addresses of its own, so that no kept pipeline is in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from demo_process import DemoProcess
from deployments import CHECKOUT, Deployment, copy_of_local, two_releases
from odd_demo import environment_of


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
