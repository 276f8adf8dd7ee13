"""Class archives speed a JVM up, and one that is not for it changes nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import class_archives


def test_an_archive_that_was_not_made_is_not_asked_for(tmp_path: Path) -> None:
    assert class_archives.options(tmp_path / "none.jsa") == ()


def test_an_archive_of_something_else_is_passed_over_without_a_word(tmp_path: Path) -> None:
    archive = tmp_path / "other.jsa"
    archive.write_bytes(b"x" * 4096)
    command = ["java", *class_archives.options(archive), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert all("archive" not in line for line in done.stderr.splitlines())
