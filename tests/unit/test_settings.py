"""What pytest and Hypothesis are set to, seen from a test that would fail by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("warnings.warn('new')", "1 failed"),
        ("warnings.warn('old', DeprecationWarning)", "1 failed"),
        ("warnings.warn('open_text is deprecated. Use files() instead.', DeprecationWarning)", "1 passed"),
    ],
)
def test_a_warning_fails_its_test(body: str, outcome: str, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(f"import warnings\ndef test_one():\n    {body}\n")
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
    assert outcome in done.stdout, done.stdout + done.stderr


def test_a_property_has_no_deadline() -> None:
    assert hypothesis.settings().deadline is None
    assert hypothesis.HealthCheck.too_slow in hypothesis.settings().suppress_health_check
