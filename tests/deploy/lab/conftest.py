"""The small lab, up for a session and gone after it, with the pipeline rolled out on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from lab_kit import CHECKOUT, INVENTORY, Lab, Traffic

from lab import engine
from lab.command import listing
from lab.topology import topology_of

LATE = (
    "test_lab_upgrade.py",
    "test_lab_views.py::test_a_plan_of_bare_hosts",
    # It takes the lab down.
    "test_lab_pipeline.py::test_the_commands_of_the_page",
    # It brings up another one.
    "test_lab_large.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What wants bare hosts comes first, and what leaves another release or no data behind comes late."""

    def turn(item: pytest.Item) -> int:
        found = [at for at, part in enumerate(LATE, 2) if part in item.nodeid]
        return found[0] if found else 0 if "test_lab_example" in item.nodeid else 1

    items.sort(key=turn)


@pytest.fixture(scope="session")
def small_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Skipped with the reason where no lab can be, but not in CI. HEADRACE_LAB_KEEP=1 leaves it up."""
    up = subprocess.run(
        [sys.executable, "-m", "lab", "up", "--inventory", INVENTORY],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    docker = engine.running()
    if docker is None and not os.environ.get("CI"):
        pytest.skip(up.stderr.strip())
    assert up.returncode == 0, up.stderr
    assert docker is not None
    print(up.stdout)
    hosts = [host.name for host in topology_of(listing(INVENTORY)).hosts if not host.is_router]
    try:
        yield Lab(docker=docker, folder=tmp_path_factory.mktemp("lab"), hosts=hosts)
    finally:
        if not os.environ.get("HEADRACE_LAB_KEEP"):
            subprocess.run([sys.executable, "-m", "lab", "down"], cwd=CHECKOUT, check=True)


@pytest.fixture(scope="session")
def rolled_out(small_lab: Lab) -> Lab:
    """The lab after `site.yml`, from nothing."""
    assert (CHECKOUT / "dist").is_dir(), "There is no release to roll out: run `make release`."
    small_lab.first = small_lab.play("site.yml")
    assert small_lab.first.returncode == 0, small_lab.first.output[-6000:]
    return small_lab


@pytest.fixture(scope="module")
def traffic(rolled_out: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traffic]:
    """Published to dc-east from here on, until a test ends it or the module does."""
    found = Traffic(tmp_path_factory.mktemp("traffic"))
    try:
        assert found.moves(), found.log.read_text()
        yield found
    finally:
        rolled_out.acknowledged += found.stop()["acknowledged"]
