"""The logs of a broker: where they are made, flushed, closed and deleted."""

import errno
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from log_kit import NOW_MS, append, batch, open_store, roll

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import StorageError
from headrace.broker.log.files import OsFiles

TOPIC_ID = UUID(int=7)
DELAYED = LogConfig(file_delete_delay_ms=100)


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
    store, _ = open_store(
        tmp_path / "a",
        tmp_path / "b",
        overrides=lambda topic: {"segment.bytes": "12345"} if topic == "special" else {},
    )
    logs = [store.create("special", partition, None, now_ms=NOW_MS) for partition in range(4)]
    assert sorted(log.directory.split("/")[-2] for log in logs) == ["a", "a", "b", "b"]
    assert {log.config.segment_bytes for log in logs} == {12345}
    assert store.create("special", 0, None, now_ms=NOW_MS) is logs[0]
    store.update_config("special", {"segment.bytes": "54321"})
    assert {log.config.segment_bytes for log in store.all()} == {54321}


def test_a_deleted_partition_is_gone_at_once_and_its_files_after_a_delay(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, config=DELAYED)
    append(store.create("events", 0, TOPIC_ID, now_ms=NOW_MS), batch(3))
    store.delete("events", 0, now_ms=NOW_MS)
    assert store.get("events", 0) is None
    (deleted,) = tmp_path.glob("*-delete")
    assert re.fullmatch(r"events-0\.[0-9a-f]{32}-delete", deleted.name)
    assert store.create("events", 0, None, now_ms=NOW_MS).log_end_offset == 0
    assert store.removals(NOW_MS + 99) == []
    assert list(tmp_path.glob("*-delete"))
    for job in store.removals(NOW_MS + 100):
        job()
    assert not list(tmp_path.glob("*-delete"))


def test_a_partition_may_come_and_go_again_before_its_files_are_gone(tmp_path: Path) -> None:
    """As when a reassignment is turned back and forth."""
    store, _ = open_store(tmp_path, config=DELAYED)
    for _ in range(3):
        append(store.create("events", 0, TOPIC_ID, now_ms=NOW_MS), batch(3))
        store.delete("events", 0, now_ms=NOW_MS)
    assert len(list(tmp_path.glob("*-delete"))) == 3
    assert store.offline == {}
    for job in store.removals(NOW_MS + 100):
        job()
    assert not list(tmp_path.glob("*-delete"))


def test_what_a_try_for_a_deleted_topic_left_is_put_away_and_its_namesake_keeps_its_records(
    tmp_path: Path,
) -> None:
    store, _ = open_store(tmp_path, config=DELAYED)
    given_up = store.opening("events", 0, TOPIC_ID, now_ms=NOW_MS, epoch=0)
    given_up.run()
    store.abandon([given_up])
    store.delete("events", 0, now_ms=NOW_MS)
    other_id = UUID(int=8)
    log = store.create("events", 0, other_id, now_ms=NOW_MS)
    append(log, batch(3))
    assert log.topic_id == other_id
    assert len(list(tmp_path.glob("events-0.*-delete"))) == 1
    for job in store.removals(NOW_MS + 100):
        job()
    assert not list(tmp_path.glob("*-delete"))
    store.close()
    (again,) = open_store(tmp_path)[0].all()
    assert (again.topic_id, again.log_end_offset) == (other_id, 3)


def test_a_try_again_goes_on_with_what_the_last_one_left(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    for epoch in (0, 1):
        opening = store.opening("events", 0, TOPIC_ID, now_ms=NOW_MS, epoch=epoch)
        opening.run()
        if epoch == 0:
            store.abandon([opening])
    assert store.opened(opening).body.epochs.latest == 1
    assert [path.name for path in tmp_path.glob("events-0*")] == ["events-0"]


def test_a_killed_removal_leaves_no_segment_without_its_index(tmp_path: Path) -> None:
    class KilledFiles(OsFiles):
        def remove_directory(self, path: str) -> None:
            raise OSError(errno.EIO, "killed")

    store, _ = open_store(tmp_path, config=DELAYED, files=KilledFiles())
    log = store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    append(log, batch(3))
    roll(log)
    store.delete("events", 0, now_ms=NOW_MS)
    (job,) = store.removals(NOW_MS + 100)
    with pytest.raises(StorageError):
        job()
    (folder,) = tmp_path.glob("*-delete")
    assert not list(folder.glob("*.log"))
    assert len(list(folder.glob("*.index"))) == 2


def test_a_clock_that_is_set_back_keeps_no_folder_of_a_deleted_partition(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, config=DELAYED)
    store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    store.delete("events", 0, now_ms=NOW_MS)
    earlier_ms = NOW_MS - 3_600_000
    assert store.removals(earlier_ms) == []
    assert store.removals(earlier_ms + 99) == []
    for job in store.removals(earlier_ms + 100):
        job()
    assert not list(tmp_path.glob("*-delete"))


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
    roll(log, NOW_MS + 10 * log.config.segment_ms)
    for flushed, task in store.flush_tasks(NOW_MS):
        flushed.flushed(task())
    store.checkpoint()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nevents 0 3\n"
    append(log, batch())
    _, reports = open_store(tmp_path)
    assert (reports[0].segments, reports[0].segments_walked, reports[0].log_end_offset) == (2, 1, 4)


def test_a_log_that_never_had_a_batch_is_closed_without_the_disk(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    for topic in ("empty", "events"):
        store.create(topic, 0, None, now_ms=NOW_MS).assign_epoch(3)
    for log, job in store.epoch_tasks():
        job()
        log.epochs_noted()
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, batch(2))
    store.close()
    snapshots = {path.name for path in tmp_path.glob("*/*.snapshot")}
    assert snapshots == {"00000000000000000002.snapshot"}
    again, reports = open_store(tmp_path)
    assert [(r.segments_walked, r.findings) for r in reports] == [(0, []), (0, [])]
    assert [log.log_end_offset for log in again.all()] == [0, 2]
    assert {path.stat().st_size for path in tmp_path.glob("empty-0/*.log")} == {0}


def test_a_log_is_looked_at_until_nothing_of_it_will_be_due_and_again_once_it_changes(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    log = store.create("events", 0, None, now_ms=NOW_MS)
    assert (store.flush_tasks(NOW_MS), list(log.restless)) == ([], [])
    append(log, batch(3))
    assert (store.flush_tasks(NOW_MS), list(log.restless)) == ([], [log]), "the epoch is to be noted"
    for noted, job in store.epoch_tasks():
        job()
        noted.epochs_noted()
    assert (store.flush_tasks(NOW_MS), list(log.restless)) == ([], []), "nothing wants the data on the disk"
    log.assign_epoch(7)
    assert [log for log, _ in store.epoch_tasks()] == [log]
    log.epochs_noted()
    store.update_defaults(LogConfig(flush_ms=1000))
    assert (store.flush_tasks(NOW_MS), list(log.restless)) == ([], [log])
    for flushed, task in store.flush_tasks(NOW_MS + 1000):
        flushed.flushed(task())
    assert (store.flush_tasks(NOW_MS + 3000), log.recovery_point, list(log.restless)) == ([], 3, [])
    append(log, batch())
    store.delete("events", 0, now_ms=NOW_MS)
    assert (store.flush_tasks(NOW_MS + 9000), list(log.restless)) == ([], [])


def test_producers_that_are_silent_for_as_long_as_is_configured_are_forgotten(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, config=LogConfig(retention_ms=-1))
    log = store.create("events", 0, None, now_ms=NOW_MS)
    append(log, batch(producer=(7, 0, 0)))
    store.producer_id_expiration_ms = 5000
    store.maintain(NOW_MS + 4999)
    assert len(log.producers) == 1
    store.maintain(NOW_MS + 5000)
    assert len(log.producers) == 0
