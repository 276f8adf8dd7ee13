"""`make check` types every place that has Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PLACES = (
    "broker/headrace/some_broker",
    "mirror/headrace/some_mirror",
    "pipeline/headrace/some_pipeline",
    "bench",
    "demo",
    "playbooks/filter_plugins",
    "playbooks/library",
    "playbooks/module_utils",
    "scripts",
)


def test_a_wrong_type_is_found_in_each_place(tmp_path: Path) -> None:
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    shutil.copytree(CHECKOUT / "playbooks" / "typed", tmp_path / "playbooks" / "typed", symlinks=True)
    names = {f"wrong_{index}.py": place for index, place in enumerate(PLACES)}
    for name, place in names.items():
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / name).write_text('count: int = "wrong"\n')
    (tmp_path / "fabfile.py").write_text('count: int = "wrong"\n')
    (command,) = [
        line.removeprefix("run ").split()
        for line in (CHECKOUT / "scripts" / "check").read_text().splitlines()
        if line.startswith("run mypy")
    ]
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    found = set(re.findall(r"(\w+\.py):1: error: Incompatible types", done.stdout))
    assert (done.returncode, found) == (1, {*names, "fabfile.py"}), done.stdout + done.stderr
