"""The logs of a broker whose disks fail or fill up: what is lost with one, and what goes on."""

import errno
import gc
import os
import resource
import shutil
import subprocess
from pathlib import Path
from uuid import UUID

import pytest
from log_kit import NOW_MS, append, batch, open_store

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import StorageError
from headrace.broker.log.files import DESCRIPTORS_KEPT_MIN, OsFile, OsFiles, storage_error
from headrace.broker.log.index import IndexFile
from headrace.broker.log.store import LogStore

TOPIC_ID = UUID(int=7)


class FailingFiles(OsFiles):
    """A disk that takes no change of names and no checkpoint below `broken`."""

    broken = "nowhere"

    def rename(self, source: str, target: str) -> None:
        self._check(source)
        super().rename(source, target)

    def replace_file(self, path: str, data: bytes) -> None:
        self._check(path)
        super().replace_file(path, data)

    def _check(self, path: str) -> None:
        if path.startswith(self.broken):
            raise OSError(errno.EIO, "Input/output error")


def test_a_failing_directory_keeps_the_others_from_nothing(tmp_path: Path) -> None:
    files = FailingFiles()
    folders = [str(tmp_path / name) for name in ("a", "b", "c")]
    store, _ = open_store(
        *map(Path, folders), files=files, config=LogConfig(retention_ms=1, segment_bytes=200)
    )
    for partition in range(3):
        append(store.create("events", partition, None, now_ms=NOW_MS), batch(), batch(), batch())
    files.broken = folders[0]
    with pytest.raises(StorageError, match="/a: Input/output error"):
        store.checkpoint()
    for name in ("b", "c"):
        assert "events" in (tmp_path / name / "replication-offset-checkpoint").read_text()
    findings = store.maintain(NOW_MS + 10_000)
    assert [finding.kind for finding in findings if finding.path.startswith(folders[0])] == ["failed"]
    assert {finding.kind for finding in findings if not finding.path.startswith(folders[0])} == {"retired"}
    kept = {log.directory[len(str(tmp_path)) + 1]: log.log_start_offset for log in store.all()}
    assert kept == {"a": 0, "b": 3, "c": 3}


def open_store_on(files: OsFiles, tmp_path: Path, *folders: str) -> tuple[LogStore, list[str]]:
    paths = [tmp_path / name for name in folders]
    store, _ = open_store(*paths, files=files, config=LogConfig(segment_bytes=500))
    return store, [str(path) for path in paths]


def test_a_failed_directory_takes_its_logs_along_and_what_is_not_new_stays_out_of_reach(
    tmp_path: Path,
) -> None:
    store, paths = open_store_on(FailingFiles(), tmp_path, "a", "b")
    logs = [store.create("events", partition, None, now_ms=NOW_MS) for partition in range(4)]
    error = OSError(errno.EIO, "Input/output error")
    assert store.failed(logs[0].directory, error) == [("events", 0), ("events", 2)]
    assert store.failed(logs[2].directory, error) is None, "it is offline already"
    assert (store.offline, store.has_failed) == ({paths[0]: "Input/output error"}, False)
    assert list(store.all()) == [logs[1], logs[3]]
    with pytest.raises(StorageError, match="may be in a data directory that failed"):
        store.opening("events", 0, None, now_ms=NOW_MS, is_new=False)
    assert store.create("events", 4, None, now_ms=NOW_MS).directory == f"{paths[1]}/events-4"
    assert store.failed(paths[1], error) == [("events", 1), ("events", 3), ("events", 4)]
    assert store.has_failed


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EEXIST])
def test_a_full_disk_is_no_failed_disk_and_neither_is_a_deleted_log(tmp_path: Path, number: int) -> None:
    store, paths = open_store_on(FailingFiles(), tmp_path, "a", "b")
    log = store.create("events", 0, None, now_ms=NOW_MS)
    assert store.failed(log.directory, OSError(number, "full")) is None
    store.delete("events", 0, now_ms=NOW_MS)
    assert store.failed(log.directory, FileNotFoundError(errno.ENOENT, "gone")) is None
    assert store.offline == {}
    assert store.failed(paths[0], OSError(errno.EROFS, "Read-only file system")) == []


def test_a_directory_that_fails_at_the_start_is_offline_and_with_none_left_there_is_no_start(
    tmp_path: Path,
) -> None:
    files = FailingFiles()
    files.broken = str(tmp_path / "a")
    store, paths = open_store_on(files, tmp_path, "a", "b")
    assert list(store.offline) == [paths[0]]
    assert store.create("events", 0, None, now_ms=NOW_MS).directory.startswith(paths[1])
    with pytest.raises(StorageError, match=r"No data directory can be used.*Input/output error"):
        open_store_on(files, tmp_path, "a")


def test_a_log_that_cannot_be_made_in_one_directory_is_made_in_the_next(tmp_path: Path) -> None:
    files = FailingFiles()
    store, paths = open_store_on(files, tmp_path, "a", "b")
    reported: list[str] = []
    files.failed = lambda path, error: reported.append(path)  # type: ignore[method-assign]
    files.broken = paths[0]
    log = store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    assert log.directory == f"{paths[1]}/events-0"
    assert not (tmp_path / "a" / "events-0").exists()
    assert paths[0] in reported


def test_a_directory_that_is_gone_is_not_made_anew_for_a_new_log(tmp_path: Path) -> None:
    store, paths = open_store_on(FailingFiles(), tmp_path, "a", "b")
    (tmp_path / "a").rename(tmp_path / "unmounted")
    assert store.create("events", 0, None, now_ms=NOW_MS).directory.startswith(paths[1])
    assert not (tmp_path / "a").exists()


def test_a_directory_that_was_emptied_goes_offline_with_the_next_checkpoint(tmp_path: Path) -> None:
    failures: list[tuple[str, OSError]] = []
    store, paths = open_store_on(
        OsFiles(lambda path, error: failures.append((path, error))), tmp_path, "a", "b"
    )
    append(store.create("events", 0, None, now_ms=NOW_MS), batch())
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "a").mkdir()
    with pytest.raises(StorageError, match=r"/a: meta\.properties is gone"):
        store.checkpoint()
    assert [store.failed(path, error) for path, error in failures] == [[("events", 0)]]
    assert store.offline == {paths[0]: "meta.properties is gone"}
    assert list((tmp_path / "a").iterdir()) == []


class FullFiles(OsFiles):
    """A disk without room for new files while `is_full`; `reported` are the failures of the disk."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, OSError]] = []
        super().__init__(lambda path, error: self.reported.append((path, error)))
        self.is_full = False

    def replace_file(self, path: str, data: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace_file(path, data)


def test_a_disk_has_room_for_a_file_that_fits_and_none_for_another(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)], check=True)
    try:
        assert OsFiles().has_room(str(tmp_path), 1024 * 1024)
        assert not OsFiles().has_room(str(tmp_path), 3 * 1024 * 1024)
        assert os.listdir(tmp_path) == []
        assert shutil.disk_usage(tmp_path).free == 2 * 1024 * 1024
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert not OsFiles().has_room(str(tmp_path / "nowhere"), 1)


def test_a_full_disk_refuses_new_logs_and_checkpoints_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    files = FullFiles()
    store, _ = open_store_on(files, tmp_path, "")
    log = store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    files.is_full = True
    with pytest.raises(StorageError, match="No space left"):
        store.create("events", 1, TOPIC_ID, now_ms=NOW_MS)
    with pytest.raises(StorageError, match="No space left"):
        store.checkpoint()
    assert [path.name for path in tmp_path.glob("events-*")] == ["events-0"]
    assert files.reported
    assert [store.failed(path, error) for path, error in files.reported] == [None] * len(files.reported)
    assert (list(store.all()), store.offline) == ([log], {})
    files.is_full = False
    store.create("events", 1, TOPIC_ID, now_ms=NOW_MS)
    store.checkpoint()
    assert "events 1" in (tmp_path / "recovery-point-offset-checkpoint").read_text()


def test_a_leader_begins_its_epoch_also_while_the_disk_is_full_and_notes_it_afterwards(
    tmp_path: Path,
) -> None:
    files = FullFiles()
    store, _ = open_store_on(files, tmp_path, "")
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, batch(3))
    files.is_full = True
    log.assign_epoch(4)
    assert log.epoch_end_offset(4) == (4, 3)
    for due, job in store.epoch_tasks():
        job()
        due.epochs_noted()
    assert Path(log.directory, "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n4 3\n"
    assert store.epoch_tasks() == []


def test_a_log_that_is_a_link_is_deleted_with_what_it_leads_to(tmp_path: Path) -> None:
    store, (path,) = open_store_on(OsFiles(), tmp_path, "a")
    append(store.create("events", 0, TOPIC_ID, now_ms=NOW_MS), batch())
    store.close()
    elsewhere = tmp_path / "elsewhere"
    Path(path, "events-0").rename(elsewhere)
    (elsewhere / "folder").mkdir()
    Path(path, "events-0").symlink_to(elsewhere)
    store, (path,) = open_store_on(OsFiles(), tmp_path, "a")
    store.delete("events", 0, now_ms=NOW_MS)
    # Also one that an earlier run left, and one that leads nowhere any more.
    Path(path, f"events-1.{TOPIC_ID.hex}-delete").symlink_to(tmp_path / "nowhere")
    store.close()
    store, (path,) = open_store_on(OsFiles(), tmp_path, "a")
    assert (store.offline, list(store.all())) == ({}, [])
    assert list(Path(path).glob("events*")) == list(elsewhere.iterdir()) == []


def test_a_known_partition_does_not_begin_anew_while_its_folder_is_a_link_to_a_disk_that_is_away(
    tmp_path: Path,
) -> None:
    store, paths = open_store_on(OsFiles(), tmp_path, "a", "b")
    Path(paths[1], "events-0").symlink_to(tmp_path / "unmounted")
    with pytest.raises(StorageError, match=r"/b/events-0 leads to no folder: mount its disk"):
        store.opening("events", 0, TOPIC_ID, now_ms=NOW_MS, is_new=False)
    (tmp_path / "unmounted").mkdir()
    store.opening("events", 0, TOPIC_ID, now_ms=NOW_MS, is_new=False)


def test_a_link_to_nowhere_among_the_data_directories_keeps_the_others_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "unmounted")
    store, paths = open_store_on(OsFiles(), tmp_path, "a", "b")
    assert list(store.offline) == [paths[0]]
    assert "No such file or directory. Mount its disk" in store.offline[paths[0]]
    assert not (tmp_path / "unmounted").exists()


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "Make room"),
        (errno.EROFS, "Mount its disk for writing"),
        (errno.EACCES, "Let the broker's user"),
        (errno.EMFILE, "Let the broker open more files"),
        (errno.EIO, "Repair the disk"),
    ],
)
def test_an_error_of_the_disk_names_the_file_and_what_to_do(code: int, advice: str) -> None:
    error = OSError(code, "What the system says", "/data/events-0/00000000000000000000.log")
    text = str(storage_error(OsFiles(), "/data", error))
    assert text.startswith("/data/events-0/00000000000000000000.log: What the system says. ")
    assert advice in text


def test_an_index_without_room_keeps_its_log_from_being_flushed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = open_store_on(OsFiles(), tmp_path, "")
    full, roomy = (store.create(topic, 0, None, now_ms=NOW_MS) for topic in ("full", "roomy"))
    for log in (full, roomy):
        append(log, *(batch() for _ in range(10)))
    write_out = IndexFile.write_out

    def write_out_where_there_is_room(index: IndexFile) -> None:
        if "/full-0/" in index.path:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        write_out(index)

    with monkeypatch.context() as patch:
        patch.setattr(IndexFile, "write_out", write_out_where_there_is_room)
        jobs = dict(store.flush_tasks(NOW_MS))
        roomy.flushed(jobs[roomy]())
        with pytest.raises(StorageError, match="raise the quota"):
            jobs[full]()
        full.flushed(None)
    assert (full.recovery_point, roomy.recovery_point) == (0, 10)
    for log, job in store.flush_tasks(NOW_MS):
        log.flushed(job())
    assert full.recovery_point == 10


def make_logs(store: LogStore, count: int) -> None:
    for partition in range(count):
        store.create("events", partition, None, now_ms=NOW_MS)


def test_new_logs_leave_descriptors_to_connections(tmp_path: Path) -> None:
    store, _ = open_store_on(OsFiles(), tmp_path, "")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # What earlier tests left open is not to be closed meanwhile.
    gc.collect()
    in_use = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 9 + DESCRIPTORS_KEPT_MIN, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"Too many open files\. Let the broker open more"):
            make_logs(store, DESCRIPTORS_KEPT_MIN)
        left = [os.open(os.devnull, os.O_RDONLY) for _ in range(DESCRIPTORS_KEPT_MIN // 2)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for descriptor in left:
        os.close(descriptor)
    made = len(list(store.all()))
    assert 0 < made == len(list(tmp_path.glob("events-*")))
    make_logs(store, made + 1)


class NarrowFiles(OsFiles):
    """A broker that may open no file any more while `is_narrow`, and so cannot empty folders either."""

    is_narrow = False

    def open(self, path: str, *, create: bool = False) -> OsFile:
        self._check()
        return super().open(path, create=create)

    def remove_directory(self, path: str) -> None:
        self._check()
        super().remove_directory(path)

    def _check(self) -> None:
        if self.is_narrow:
            raise OSError(errno.EMFILE, "Too many open files")


def test_a_log_for_which_too_few_files_may_be_open_is_begun_once_and_made_when_there_are_more(
    tmp_path: Path,
) -> None:
    files = NarrowFiles()
    store, paths = open_store_on(files, tmp_path, "a", "b")
    store.create("other", 0, None, now_ms=NOW_MS)
    files.is_narrow = True
    with pytest.raises(StorageError, match="Let the broker open more files"):
        store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    assert [folder.parent.name for folder in tmp_path.glob("?/events-0")] == ["b"]
    files.is_narrow = False
    store.create("more", 0, None, now_ms=NOW_MS)
    store.create("more", 1, None, now_ms=NOW_MS)
    append(store.create("events", 0, TOPIC_ID, now_ms=NOW_MS), batch())
    store.close()
    store, _ = open_store_on(files, tmp_path, "a", "b")
    assert store.home_of(("events", 0)).path == paths[1]
    assert not store.offline


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_of_two_folders_of_a_partition_one_that_never_held_a_record_goes(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    store, _ = open_store_on(OsFiles(), tmp_path, "a")
    append(store.create("events", 0, TOPIC_ID, now_ms=NOW_MS), batch())
    store.close()
    store, _ = open_store_on(OsFiles(), tmp_path, "b")
    store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    store.close()
    store, _ = open_store_on(OsFiles(), tmp_path, *order)
    assert [(log.directory, log.log_end_offset) for log in store.all()] == [(str(tmp_path / "a/events-0"), 1)]
    assert not (tmp_path / "b/events-0").exists()
    store.close()


def test_a_name_that_is_too_long_for_the_disk_is_refused_and_nothing_else(tmp_path: Path) -> None:
    reported: list[tuple[str, OSError]] = []
    store, _ = open_store_on(OsFiles(lambda path, error: reported.append((path, error))), tmp_path, "")
    with pytest.raises(StorageError, match=r"File name too long\. Use a data directory with a shorter path"):
        store.create("e" * 260, 0, None, now_ms=NOW_MS)
    assert {store.failed(path, error) is None for path, error in reported} == {True}
    store.create("events", 0, None, now_ms=NOW_MS)
