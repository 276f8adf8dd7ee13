"""`make check` types every root of the sources, and what works on a checkout only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = {root: f"{root}/headrace/some_{root}" for root in ("broker", "mirror", "pipeline")}
PACKAGES |= {name: name for name in ("bench", "demo")}


def test_a_wrong_type_is_found_in_each_root(tmp_path: Path) -> None:
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    for root, folder in PACKAGES.items():
        package = tmp_path / folder
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f'count: int = "of {root}"\n')
    (command,) = [
        line.removeprefix("run ").split()
        for line in (CHECKOUT / "scripts" / "check").read_text().splitlines()
        if line.startswith("run mypy")
    ]
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    found = {line.split("/")[0] for line in done.stdout.splitlines() if "Incompatible types" in line}
    assert (done.returncode, found) == (1, set(PACKAGES)), done.stdout + done.stderr
