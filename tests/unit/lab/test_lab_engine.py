"""Which process is the lab's own engine, and what is never ended as one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab import engine


@pytest.mark.parametrize("content", [None, "", "no number", "999999999", "own"])
def test_a_process_that_is_no_engine_is_not_ended(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the file names may have ended long ago, and its number may be another's by now."""
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr(engine, "RUN", run)
    monkeypatch.setattr(engine, "PID_FILE", run / "engine.pid")
    monkeypatch.setattr(engine, "CGROUPS", tmp_path / "cgroups")
    if content is not None:
        (run / "engine.pid").write_text(str(os.getpid()) if content == "own" else content)
    assert engine.process_id() is None
    engine.stop()
    assert not run.exists()


def test_an_engine_that_runs_keeps_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RUN", tmp_path)
    monkeypatch.setattr(engine, "process_id", lambda: 4711)
    engine.forget_remains()
    assert tmp_path.exists()


def test_hosts_get_as_many_turns_as_processes_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In either hierarchy of control groups, with the weight that it gives a process by itself."""
    monkeypatch.setattr(engine, "CGROUPS", tmp_path)
    shares = tmp_path / "cpu,cpuacct" / engine.CGROUP / "cpu.shares"
    weight = tmp_path / engine.CGROUP / "cpu.weight"
    engine.weigh(13)
    for file in (shares, weight):
        assert not file.exists()
        file.parent.mkdir(parents=True)
        file.write_text("1")
    engine.weigh(13)
    assert (shares.read_text(), weight.read_text()) == ("13312", "1300")
