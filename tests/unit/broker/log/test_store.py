"""The logs of a broker: data directories, checkpoints, clean and other stops, deletion."""

import errno
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from log_kit import NOW_MS, append, batch, offsets

from headrace.broker.config import LogConfig
from headrace.broker.errors import InvalidConfigError, StorageError
from headrace.broker.log.checkpoints import (
    CheckpointError,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_epochs,
    encode_offsets,
)
from headrace.broker.log.files import OsFiles
from headrace.broker.log.names import deleted_directory, offset_of, parse_partition_directory
from headrace.broker.log.progress import OpeningProgress
from headrace.broker.log.results import RecoveryReport
from headrace.broker.log.store import LogStore

TOPIC_ID = UUID(int=7)


def open_store(
    *folders: Path,
    broker_id: int = 1,
    cluster_id: str = "c",
    files: OsFiles | None = None,
    progress: OpeningProgress | None = None,
) -> tuple[LogStore, list[RecoveryReport]]:
    return LogStore.open(
        files or OsFiles(),
        [str(folder) for folder in folders],
        LogConfig(file_delete_delay_ms=100),
        broker_id=broker_id,
        cluster_id=cluster_id,
        overrides=lambda topic: {"segment.bytes": "12345"} if topic == "special" else {},
        now_ms=NOW_MS,
        progress=progress,
    )


def test_a_clean_stop_is_remembered_once(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    log = store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    append(log, batch(3))
    store.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    store, reports = open_store(tmp_path)
    assert [(report.log_end_offset, report.segments_walked) for report in reports] == [(3, 0)]
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    found = store.get("events", 0)
    assert found is not None
    assert (found.topic_id, found.high_watermark, offsets(found)) == (TOPIC_ID, 3, [0])
    _, reports = open_store(tmp_path)
    assert [report.segments_walked for report in reports] == [1]


def test_logs_close_side_by_side_and_one_that_fails_leaves_its_directory_unclean(tmp_path: Path) -> None:
    for is_broken in (False, True):
        home = tmp_path / str(is_broken)
        store, _ = open_store(home)
        logs = [store.create("events", partition, TOPIC_ID, now_ms=NOW_MS) for partition in range(5)]
        for log in logs:
            append(log, batch(2))
        if is_broken:
            (home / "events-2").rename(home / "moved-2")
        with ThreadPoolExecutor(5) as pool:
            if is_broken:
                with pytest.raises(StorageError, match="events-2"):
                    store.close(pool.map)
            else:
                store.close(pool.map)
        assert (home / ".kafka_cleanshutdown").exists() is not is_broken
    _, reports = open_store(tmp_path / "False")
    assert [(report.log_end_offset, report.segments_walked) for report in reports] == [(2, 0)] * 5


def test_partitions_are_spread_over_directories_and_keep_their_own_configuration(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path / "a", tmp_path / "b")
    logs = [store.create("special", partition, None, now_ms=NOW_MS) for partition in range(4)]
    assert sorted(log.directory.split("/")[-2] for log in logs) == ["a", "a", "b", "b"]
    assert {log.config.segment_bytes for log in logs} == {12345}
    assert store.create("special", 0, None, now_ms=NOW_MS) is logs[0]
    store.update_config("special", {"segment.bytes": "54321"})
    assert {log.config.segment_bytes for log in store.all()} == {54321}


@pytest.mark.parametrize(
    "name", ["a b-0", "é-0", "line\n-0", "-0", "events-", "events-00", "events-2147483648", "l" * 250 + "-0"]
)
def test_folders_that_no_partition_is_named_for_are_left_alone(tmp_path: Path, name: str) -> None:
    store, _ = open_store(tmp_path)
    store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    store.close()
    (tmp_path / name).mkdir()
    (tmp_path / "notes-1").write_text("somebody else's")
    store, reports = open_store(tmp_path)
    assert [report.directory for report in reports] == [f"{tmp_path}/events-0"]
    store.close()
    assert decode_offsets((tmp_path / "recovery-point-offset-checkpoint").read_bytes()) == {("events", 0): 0}
    assert list((tmp_path / name).iterdir()) == []


def test_a_copy_beside_its_log_leads_nowhere(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    append(store.create("events", 0, TOPIC_ID, now_ms=NOW_MS), batch(3))
    store.close()
    copy = tmp_path / f"events-0.{'0' * 32}-future"
    copy.mkdir()
    store, _ = open_store(tmp_path)
    assert not copy.exists()
    assert store.moves.target(("events", 0)) is None
    assert [log.log_end_offset for log in store.all()] == [3]


def test_a_configuration_that_cannot_be_used_names_its_topic(tmp_path: Path) -> None:
    def opened(overrides: dict[str, str]) -> LogStore:
        return LogStore.open(
            OsFiles(),
            [str(tmp_path)],
            LogConfig(),
            broker_id=1,
            cluster_id="c",
            overrides=lambda _: overrides,
            now_ms=NOW_MS,
        )[0]

    store = opened({})
    store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    store.close()
    with pytest.raises(InvalidConfigError, match=r"topic 'events' cannot be used: segment.bytes=x is not"):
        opened({"segment.bytes": "x"})


def test_a_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        append(open_store(tmp_path / folder)[0].create("events", 0, None, now_ms=NOW_MS), batch())
    with pytest.raises(StorageError, match="move one"):
        open_store(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ({"broker_id": 2}, "correct broker.id, or give this broker a data directory of its own"),
        ({"cluster_id": "d"}, "check zookeeper.connect first"),
    ],
)
def test_a_directory_of_another_broker_or_cluster_is_refused(
    tmp_path: Path, other: dict[str, int], advice: str
) -> None:
    open_store(tmp_path)
    with pytest.raises(StorageError, match=advice):
        open_store(tmp_path, **other)  # type: ignore[arg-type]


def test_a_deleted_partition_is_gone_at_once_and_its_files_after_a_delay(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    append(store.create("events", 0, TOPIC_ID, now_ms=NOW_MS), batch(3))
    store.delete("events", 0, now_ms=NOW_MS)
    assert store.get("events", 0) is None
    assert [path.name for path in tmp_path.glob("*-delete")] == [f"events-0.{TOPIC_ID.hex}-delete"]
    assert store.create("events", 0, None, now_ms=NOW_MS).log_end_offset == 0
    assert store.removals(NOW_MS + 99) == []
    assert list(tmp_path.glob("*-delete"))
    for job in store.removals(NOW_MS + 100):
        job()
    assert not list(tmp_path.glob("*-delete"))


def test_a_killed_removal_leaves_no_segment_without_its_index(tmp_path: Path) -> None:
    class KilledFiles(OsFiles):
        def remove_directory(self, path: str) -> None:
            raise OSError(errno.EIO, "killed")

    store, _ = open_store(tmp_path, files=KilledFiles())
    log = store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    append(log, batch(3))
    log.roll(NOW_MS)
    store.delete("events", 0, now_ms=NOW_MS)
    (job,) = store.removals(NOW_MS + 100)
    with pytest.raises(StorageError):
        job()
    (folder,) = tmp_path.glob("*-delete")
    assert not list(folder.glob("*.log"))
    assert len(list(folder.glob("*.index"))) == 2


def test_a_clock_that_is_set_back_keeps_no_folder_of_a_deleted_partition(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    store.delete("events", 0, now_ms=NOW_MS)
    earlier_ms = NOW_MS - 3_600_000
    assert store.removals(earlier_ms) == []
    assert store.removals(earlier_ms + 99) == []
    for job in store.removals(earlier_ms + 100):
        job()
    assert not list(tmp_path.glob("*-delete"))


def test_folders_of_deleted_partitions_go_at_the_next_start(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    store.delete("events", 0, now_ms=NOW_MS)
    again, reports = open_store(tmp_path)
    assert (list(again.all()), reports, list(tmp_path.glob("*-delete"))) == ([], [], [])


def test_deleted_records_stay_deleted_after_a_checkpoint(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, batch(3), batch(3))
    log.delete_before(4)
    store.checkpoint()
    again = open_store(tmp_path)[0].get("events", 0)
    assert again is not None
    assert again.log_start_offset == 4


def test_a_flush_is_checkpointed_and_bounds_the_next_recovery(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, batch(3))
    log.roll(NOW_MS + 10 * log.config.segment_ms)
    for flushed, task in store.flush_tasks(NOW_MS):
        flushed.flushed(task())
    store.checkpoint()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nevents 0 3\n"
    append(log, batch())
    _, reports = open_store(tmp_path)
    assert (reports[0].segments, reports[0].segments_walked, reports[0].log_end_offset) == (2, 1, 4)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\0" * 40,
        b"garbage",
        b"0\n2\nevents 0 3\n",
        b"0\n1\nevents 0 x\n",
        b"0\n1\nevents 0 -1\n",
        b"0\n1\nevents 0 9223372036854775808\n",
        b"0\n1\nevents 2147483648 0\n",
    ],
)
def test_damaged_checkpoints_cost_a_longer_recovery_but_no_data(tmp_path: Path, damage: bytes) -> None:
    store, _ = open_store(tmp_path)
    append(store.create("events", 0, None, now_ms=NOW_MS), batch(3))
    store.checkpoint()
    for path in tmp_path.glob("*-checkpoint"):
        path.write_bytes(damage)
    again, reports = open_store(tmp_path)
    log = again.get("events", 0)
    assert log is not None
    assert offsets(log) == [0]
    discarded = [finding for report in reports for finding in report.findings if finding.kind == "discarded"]
    assert len(discarded) == (0 if damage == b"" else 4)


def test_checkpoints_are_kafkas_text_files() -> None:
    offsets_by_partition = {("b", 1): 5, ("a", 10): 0}
    assert encode_offsets(offsets_by_partition) == b"0\n2\na 10 0\nb 1 5\n"
    assert decode_offsets(encode_offsets(offsets_by_partition)) == offsets_by_partition
    assert encode_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    assert decode_epochs(b"0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]
    assert decode_meta_properties(b"#\n#Sat Nov 21\ncluster.id=x=y\nversion=0\n") == {
        "cluster.id": "x=y",
        "version": "0",
    }
    for damaged in (b"1\n0\n", b"0\n1\n3 17\n2 18\n", b"0\n2\n3 17\n2 18\n", b"\xff"):
        with pytest.raises(CheckpointError):
            decode_epochs(damaged)
    with pytest.raises(CheckpointError):
        decode_partition_metadata(b"version: 0\n")


def test_names_are_kafkas() -> None:
    assert parse_partition_directory("a-b-12") == ("a-b", 12)
    assert parse_partition_directory("lost+found") is None
    assert parse_partition_directory(f"events-0.{TOPIC_ID.hex}-delete") is None
    assert offset_of("00000000000000000042.log") == 42
    assert offset_of("leader-epoch-checkpoint") is None
    assert len(deleted_directory("t" * 249, 3, TOPIC_ID)) == 255


def test_logs_are_opened_side_by_side(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    for partition in range(8):
        append(store.create("events", partition, None, now_ms=NOW_MS), batch(partition + 1))
    store.checkpoint()
    with ThreadPoolExecutor(4) as pool:
        again, reports = LogStore.open(
            OsFiles(),
            [str(tmp_path)],
            LogConfig(),
            broker_id=1,
            cluster_id="c",
            overrides=lambda _: {},
            now_ms=NOW_MS,
            map_folders=pool.map,
        )
    assert [log.log_end_offset for log in again.all()] == list(range(1, 9))
    assert [report.log_end_offset for report in reports] == list(range(1, 9))


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


def test_what_a_crash_kept_in_the_checkpoints_is_not_said_of_a_new_log_of_that_name(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    append(store.create("events", 0, None, now_ms=NOW_MS), batch(3))
    store.close()
    (tmp_path / "events-0").rename(tmp_path / f"events-0.{TOPIC_ID.hex}-delete")
    store, _ = open_store(tmp_path)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
    append(store.create("events", 0, None, now_ms=NOW_MS), batch())
    again, reports = open_store(tmp_path)
    assert (reports[0].segments_walked, reports[0].log_start_offset, reports[0].log_end_offset) == (1, 0, 1)
    assert [log.recovery_point for log in again.all()] == [0]


def test_an_older_checkpoint_never_replaces_a_newer_one(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    store.create("events", 0, None, now_ms=NOW_MS)
    (older,) = store.checkpoint_jobs()
    store.create("events", 1, None, now_ms=NOW_MS)
    (newer,) = store.checkpoint_jobs()
    newer()
    older()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nevents 0 0\nevents 1 0\n"


def test_producers_that_are_silent_for_as_long_as_is_configured_are_forgotten(tmp_path: Path) -> None:
    store, _ = LogStore.open(
        OsFiles(),
        [str(tmp_path)],
        LogConfig(retention_ms=-1),
        broker_id=1,
        cluster_id="c",
        overrides=lambda _: {},
        now_ms=NOW_MS,
    )
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, batch(producer=(7, 0, 0)))
    store.producer_id_expiration_ms = 5000
    store.maintain(NOW_MS + 4999)
    assert len(log.producers) == 1
    store.maintain(NOW_MS + 5000)
    assert len(log.producers) == 0


def test_a_start_tells_what_it_opened_and_what_recovery_checked(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    sizes = []
    for number in range(3):
        log = store.create("events", number, None, now_ms=NOW_MS)
        append(log, batch())
        sizes.append(log.size)
    del store, log
    progress = OpeningProgress()
    again, _ = open_store(tmp_path, progress=progress)
    assert (progress.logs_opened, progress.logs_left) == (3, 0)
    assert (progress.bytes_checked, progress.segments_checked) == (sum(sizes), 3)
    assert (progress.bytes_total, progress.bytes_left) == (sum(sizes), 0)
    again.close()
    progress = OpeningProgress()
    open_store(tmp_path, progress=progress)
    assert (progress.logs_opened, progress.bytes_total, progress.bytes_checked) == (3, 0, 0)
