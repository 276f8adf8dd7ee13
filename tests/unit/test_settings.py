"""What pytest and Hypothesis are set to, seen from a test that would fail by it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import hypothesis

CHECKOUT = Path(__file__).resolve().parents[2]


WARNINGS = {
    "new": "warnings.warn('new')",
    "old": "warnings.warn('old', DeprecationWarning)",
    "known": "warnings.warn('open_text is deprecated. Use files() instead.', DeprecationWarning)",
}


def test_a_warning_fails_its_test(tmp_path: Path) -> None:
    tests = "".join(f"def test_{name}():\n    {body}\n" for name, body in WARNINGS.items())
    (tmp_path / "test_three.py").write_text(f"import warnings\n{tests}")
    settings = CHECKOUT / "pyproject.toml"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            str(settings),
            "-p",
            "no:cacheprovider",
            "--rootdir",
            ".",
            ".",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(re.findall(r"^FAILED \S+::test_(\w+)", done.stdout, re.MULTILINE)) == {"new", "old"}
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr


def test_a_property_has_no_deadline() -> None:
    assert hypothesis.settings().deadline is None
    assert hypothesis.HealthCheck.too_slow in hypothesis.settings().suppress_health_check
