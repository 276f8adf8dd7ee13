"""Whose a data directory is, and which of its checkpoints counts."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from log_kit import NOW_MS, open_store

from headrace.broker.errors import StorageError


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ({"broker_id": 2}, "correct broker.id, or give this broker a data directory of its own"),
        ({"cluster_id": "d"}, "check zookeeper.connect first"),
    ],
)
def test_a_directory_of_another_broker_or_cluster_is_refused(
    tmp_path: Path, other: dict[str, Any], advice: str
) -> None:
    open_store(tmp_path)
    with pytest.raises(StorageError, match=advice):
        open_store(tmp_path, **other)


def test_one_process_at_a_time_uses_a_directory_by_the_lock_that_java_takes(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    take = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+b'); "
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", take, str(tmp_path / ".lock")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert "BlockingIOError" in refused.stderr
    store.close()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(StorageError, match="Another broker uses"):
            open_store(tmp_path)
        other.communicate()
    open_store(tmp_path)


def test_an_older_checkpoint_never_replaces_a_newer_one(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    store.create("events", 0, None, now_ms=NOW_MS)
    (older,) = store.checkpoint_jobs()
    store.create("events", 1, None, now_ms=NOW_MS)
    (newer,) = store.checkpoint_jobs()
    newer()
    older()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nevents 0 0\nevents 1 0\n"
