"""What a start finds in the data directories: clean and other stops, folders that lead nowhere, damage."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from log_kit import NOW_MS, append, batch, offsets, open_store

from headrace.broker.errors import InvalidConfigError, StorageError
from headrace.broker.log.checkpoints import decode_offsets
from headrace.broker.log.progress import OpeningProgress
from headrace.broker.log.store import LogStore

TOPIC_ID = UUID(int=7)


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
        return open_store(tmp_path, overrides=lambda _: overrides)[0]

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


def test_folders_of_deleted_partitions_go_at_the_next_start(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    store.delete("events", 0, now_ms=NOW_MS)
    again, reports = open_store(tmp_path)
    assert (list(again.all()), reports, list(tmp_path.glob("*-delete"))) == ([], [], [])


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


def test_logs_are_opened_side_by_side(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    for partition in range(8):
        append(store.create("events", partition, None, now_ms=NOW_MS), batch(partition + 1))
    store.checkpoint()
    with ThreadPoolExecutor(4) as pool:
        again, reports = open_store(tmp_path, map_folders=pool.map)
    assert [log.log_end_offset for log in again.all()] == list(range(1, 9))
    assert [report.log_end_offset for report in reports] == list(range(1, 9))


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


def test_a_log_that_ends_below_its_high_watermark_says_so_until_it_has_it_all_again(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    log = store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    for _ in range(3):
        append(log, batch(3))
    log.advance_high_watermark(9)
    store.checkpoint()
    # The machine lost its power before the last two batches were on the disk.
    segment = tmp_path / "events-0" / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[: log.size // 3])
    for stop in ("unclean", "clean", "unclean"):
        store, _ = open_store(tmp_path)
        found = store.get("events", 0)
        assert found is not None
        assert (found.log_end_offset, found.high_watermark, found.lost_end) == (3, 3, 9)
        if stop == "clean":
            store.close()
        else:
            store.checkpoint()
    assert found is not None
    found.lost_end = None
    store.close()
    store, _ = open_store(tmp_path)
    found = store.get("events", 0)
    assert found is not None
    assert found.lost_end is None
    store.close()
