"""What a person's tasks say where no pipeline runs."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any

import pytest

FABFILE = Path(__file__).resolve().parents[2] / "fabfile.py"
specification = importlib.util.spec_from_file_location("fabfile", FABFILE)
assert specification is not None
assert specification.loader is not None
fabfile: Any = importlib.util.module_from_spec(specification)
specification.loader.exec_module(fabfile)


def test_a_supervisor_that_was_killed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabfile, "SUPERVISOR", tmp_path / "supervisor" / "supervisord.conf")
    with pytest.raises(SystemExit, match="No pipeline runs here"):
        fabfile.supervisorctl(None, "status")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.bind(str(tmp_path / "supervisor.sock"))
    with pytest.raises(SystemExit, match="No pipeline runs here"):
        fabfile.supervisorctl(None, "status")
