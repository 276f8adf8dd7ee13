"""`make check` types every root of the sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
ROOTS = ("broker", "mirror", "pipeline")


def test_a_wrong_type_is_found_in_each_root(tmp_path: Path) -> None:
    shutil.copy(CHECKOUT / "pyproject.toml", tmp_path)
    for root in ROOTS:
        package = tmp_path / root / "headrace" / f"some_{root}"
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
    assert (done.returncode, found) == (1, set(ROOTS)), done.stdout + done.stderr
