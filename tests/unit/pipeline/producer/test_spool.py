"""The folder of spools: whose file is whose, and that nothing that is wrong with it ends a producer."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.events.monitoring import ProcessName
from headrace.producer import spool as spool_module
from headrace.producer.spool import (
    VARIABLE,
    LeftBehind,
    Spool,
    boot_id,
    folder_of,
    left_behind,
    new_spool,
    of_cluster,
)
from headrace.producer.spool_layout import Head, cluster_number

NOW = 1_700_000_000_000
HERE = cluster_number("here")
HEAD = Head(
    producer="p",
    server="web-1",
    service="shop",
    datacenter="dc-east",
    bootstrap="127.0.0.1:9092",
    process=ProcessName("host-1", 4711, NOW - 5000),
    boot=boot_id(),
    window_size_ms=1000,
    topics=("t",),
    slots=64,
)


def left_in(folder: Path) -> list[LeftBehind]:
    return list(left_behind(folder, lambda _: True, lambda: NOW))


def new(folder: Path, **rest: Any) -> Spool:
    found = new_spool(folder, replace(HEAD, **rest))
    assert found is not None
    found.note_cluster(HERE)
    return found


def test_a_spool_is_its_lifes_until_it_lets_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "deep" / "folder"
    spool = new(folder)
    (path,) = folder.iterdir()
    assert (path.name, stat.S_IMODE(path.stat().st_mode)) == ("p.spool", 0o640)
    spool.rings["t"].on_sent(0, NOW)
    spool.rings["t"].on_acknowledged(0, NOW + 1)
    spool.rings["t"].on_sent(1, NOW)
    spool.note_monitoring(9)
    assert left_in(folder) == [], "it is locked"
    spool.leave()
    (left,) = left_in(folder)
    assert (left.head, left.sequence, left.cluster) == (HEAD, 9, HERE)
    assert [(topic, account.kind, account.count) for topic, account in left.accounts] == [
        ("t", "window", 1),
        ("t", "closing", 0),
    ]
    assert (left.acknowledged, left.unknown) == (1, 1)
    assert left_in(folder) == [], "one process at a time has it"
    left.leave()
    (left,) = left_in(folder)
    left.forget()
    assert list(folder.iterdir()) == []
    assert not caplog.records


def test_a_life_that_ends_well_leaves_nothing(tmp_path: Path) -> None:
    new(tmp_path).forget()
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_does_not_keep_its_parents_file_locked(tmp_path: Path) -> None:
    spool = new(tmp_path)
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        # As `Life.abandon` does; the mapping stays.
        spool.leave()
        os.read(reader, 1)
        os._exit(0)
    assert left_in(tmp_path) == [], "the parent lives"
    spool.leave()
    deadline = 1000
    while not (found := left_in(tmp_path)) and deadline:
        deadline -= 1
    os.write(writer, b"x")
    os.waitpid(pid, 0)
    assert len(found) == 1


def test_lives_of_others_are_left_alone(tmp_path: Path) -> None:
    for producer, service in (("p", "shop"), ("q", "till")):
        new(tmp_path, producer=producer, service=service).leave()
    found = list(left_behind(tmp_path, lambda head: head.service == "till", lambda: NOW))
    assert [left.head.producer for left in found] == ["q"]


def test_a_life_of_another_cluster_is_named_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new(tmp_path, producer="p").leave()
    elsewhere = new(tmp_path, producer="q")
    elsewhere.note_cluster(cluster_number("elsewhere"))
    elsewhere.leave()
    (left,) = of_cluster(left_in(tmp_path), HERE, "x:1")
    assert left.head.producer == "p"
    (record,) = caplog.records
    assert (
        "q.spool is left alone: it is about another cluster than the one that is at x:1"
        in record.getMessage()
    )
    assert len(left_in(tmp_path)) == 1, "it was let go of"


def test_a_life_that_has_reached_no_cluster_leaves_nothing(tmp_path: Path) -> None:
    spool = new_spool(tmp_path, HEAD)
    assert spool is not None
    spool.rings["t"].on_sent(0, NOW)
    spool.leave()
    assert left_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_foreign_or_damaged_is_named_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.spool").write_bytes(b"something else")
    (tmp_path / "b.spool").mkdir()
    (tmp_path / "c.spool").symlink_to(tmp_path / "a.spool")
    (tmp_path / "notes").write_text("x")
    new(tmp_path).leave()
    os.truncate(tmp_path / "p.spool", 8192)
    assert left_in(tmp_path) == []
    assert [record.getMessage().count("is left alone") for record in caplog.records] == [1] * 4
    assert len(list(tmp_path.iterdir())) == 5


def test_what_an_earlier_start_of_the_host_left_is_not_relied_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new(tmp_path, boot="an earlier one").leave()
    assert left_in(tmp_path) == []
    assert "before this host started" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_costs_a_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert new_spool(tmp_path, HEAD) is None
    (record,) = caplog.records
    assert "No space left" in record.getMessage()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "FOLDER_SIZE_MAX", 8192)
    new(tmp_path).leave()
    assert new_spool(tmp_path, replace(HEAD, producer="q")) is None
    (tmp_path / "file").write_text("x")
    assert new_spool(tmp_path / "file", HEAD) is None


def test_the_folder_is_as_configured_or_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/x")
    assert (folder_of("/y"), folder_of(None), folder_of("")) == (Path("/y"), Path("/x"), None)
    monkeypatch.setenv(VARIABLE, "")
    assert folder_of(None) is None
    monkeypatch.delenv(VARIABLE)
    assert folder_of(None) == Path(f"/dev/shm/headrace-{os.geteuid()}")
    assert new_spool(None, HEAD) is None
    assert list(left_behind(None, lambda _: True, lambda: NOW)) == []


def test_what_was_killed_before_it_began_is_removed(tmp_path: Path) -> None:
    for name in ("old.new", "young.new"):
        (tmp_path / name).write_bytes(b"")
    os.utime(tmp_path / "old.new", (1, 1))
    assert left_in(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["young.new"]
