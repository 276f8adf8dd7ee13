"""The script that writes an inventory says in a sentence what it lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from terraform_kit import CHECKOUT, needs_provider

pytestmark = needs_provider


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        (os.environ["PATH"], "run `terraform apply` first"),
        ("", "Terraform is not installed: install version 1.11."),
    ],
)
def test_an_inventory_of_nothing_is_refused(path: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text("", encoding="utf-8")
    script = CHECKOUT / "scripts" / "terraform_inventory.py"
    command = [
        sys.executable,
        str(script),
        "--pipeline",
        str(tmp_path),
        "--output",
        str(tmp_path / "hosts.yml"),
    ]
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "hosts.yml").exists()
