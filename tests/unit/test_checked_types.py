"""`make check` types every place that has Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]
PLACES = (
    "broker/headrace/some_broker",
    "mirror/headrace/some_mirror",
    "pipeline/headrace/some_pipeline",
    "bench",
    "demo",
    "lab",
    "playbooks/action_plugins",
    "playbooks/callback_plugins",
    "playbooks/filter_plugins",
    "playbooks/headrace_inventory",
    "playbooks/headrace_views",
    "playbooks/library",
    "playbooks/module_utils",
    "scripts",
    "tests/bench",
    "tests/conformance",
    "tests/deploy",
    "tests/deploy/lab",
    "tests/e2e",
    "tests/sim",
    "tests/unit",
    "tests/unit/broker/log",
    "tests/unit/lab",
    "tests/unit/pipeline/load",
    "tests/world",
)
CONFTESTS = [str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / "tests").rglob("conftest.py")]


def test_a_wrong_type_is_found_in_each_place(tmp_path: Path) -> None:
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    shutil.copytree(CHECKOUT / "playbooks" / "typed", tmp_path / "playbooks" / "typed", symlinks=True)
    files = [*(f"{place}/wrong_{number}.py" for number, place in enumerate(PLACES)), *CONFTESTS, "fabfile.py"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(f'count: int = "in {file}"\n')
    commands = [
        line.removeprefix("run ").split()
        for line in (CHECKOUT / "scripts" / "check").read_text().splitlines()
        if line.startswith("run mypy")
    ]
    found: set[str] = set()
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1, done.stdout + done.stderr
        found |= set(re.findall(r"(\S+\.py):1: error: Incompatible types", done.stdout))
    seen = {file.replace("playbooks/typed/ansible/", "playbooks/") for file in found}
    assert seen == set(files)


def test_helpers_are_found_where_pytest_finds_them() -> None:
    searched = SETTINGS["mypy"]["mypy_path"].split(":")
    assert set(SETTINGS["pytest"]["ini_options"]["pythonpath"]) <= {".", *searched}


def test_the_simulated_world_is_found_by_all_tests() -> None:
    assert "tests/world" in SETTINGS["mypy"]["mypy_path"].split(":")
    assert "tests/world" in SETTINGS["pytest"]["ini_options"]["pythonpath"]
