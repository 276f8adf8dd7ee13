"""What a log finds after a crash: torn tails are cut, rot is kept and named, indexes and snapshots are made anew."""

from pathlib import Path

import pytest
from log_kit import NOW_MS, append, batch, fill, offsets, open_log

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import OutOfOrderSequenceError
from headrace.broker.log.appender import Appender
from headrace.broker.log.results import RecoveryReport

SIZE = len(batch())
SMALL = LogConfig(segment_bytes=4 * SIZE, index_interval_bytes=SIZE)


def kinds(report: RecoveryReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def log_file(folder: Path, base_offset: int = 0) -> Path:
    return folder / "events-0" / f"{base_offset:020d}.log"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_killed_broker_loses_nothing(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    fill(log, 10)
    again, report = open_log(tmp_path, SMALL)
    assert offsets(again) == list(range(10))
    assert (report.findings, report.segments_walked, report.log_end_offset) == ([], 3, 10)


def test_a_cut_at_any_byte_of_the_last_two_batches_loses_only_those_it_hits(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 6)
    whole = log_file(tmp_path).read_bytes()
    for size in range(4 * SIZE, 6 * SIZE):
        log_file(tmp_path).write_bytes(whole[:size])
        again, report = open_log(tmp_path)
        assert (again.log_end_offset, again.size) == (size // SIZE, size - size % SIZE)
        assert report.bytes_cut == size % SIZE
        append(again, batch())
        assert offsets(again) == list(range(size // SIZE + 1))


@pytest.mark.parametrize("tail", [b"\0" * 500, b"\xff" * 500, b"garbage", bytes(batch())[:60]])
def test_an_unreadable_tail_is_cut(tmp_path: Path, tail: bytes) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 3)
    with log_file(tmp_path).open("ab") as file:
        file.write(tail)
    for recovery_point in (0, 3, 100):
        again, report = open_log(tmp_path, recovery_point=recovery_point)
        assert (again.log_end_offset, offsets(again)) == (3, [0, 1, 2])
        assert kinds(report) == (["cut"] if recovery_point == 0 else [])


def test_batches_whose_offsets_do_not_increase_are_cut(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 3)
    with log_file(tmp_path).open("ab") as file:
        file.write(batch(at=2))
    again, report = open_log(tmp_path)
    assert again.log_end_offset == 3
    assert "does not follow" in report.findings[0].reason


def test_a_flipped_bit_in_unflushed_data_ends_the_log_there(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    fill(log, 10)
    flip(log_file(tmp_path), 2 * SIZE + 65)
    again, report = open_log(tmp_path, SMALL)
    assert offsets(again) == [0, 1]
    assert kinds(report) == ["cut", "dropped", "dropped"]
    assert report.bytes_cut == 8 * SIZE
    assert not log_file(tmp_path, 4).exists()


@pytest.mark.parametrize("position", [65, 18, 8, 10, 16, 3])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_rot_in_flushed_data_is_reported_and_kept(tmp_path: Path, number: int, position: int) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 6)
    flip(log_file(tmp_path), number * SIZE + position)
    rotten = log_file(tmp_path).read_bytes()
    again, report = open_log(tmp_path, recovery_point=4)
    assert log_file(tmp_path).read_bytes() == rotten
    assert (kinds(report), report.bytes_cut) == (["rot"], 0)
    assert (report.findings[0].position, report.findings[0].size) == (number * SIZE, SIZE)
    assert (log.rotten_places, again.rotten_places) == (0, 1)
    assert again.log_end_offset == 6
    append(again, batch())
    assert again.log_end_offset == 7


def test_rot_in_the_last_flushed_batch_is_kept_and_its_offset_not_used_again(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 4)
    flip(log_file(tmp_path), 3 * SIZE + 65)
    again, report = open_log(tmp_path, recovery_point=4)
    assert (kinds(report), again.log_end_offset, again.size) == (["rot"], 4, 4 * SIZE)


def test_rot_before_a_torn_tail_does_not_save_the_tail(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 6)
    flip(log_file(tmp_path), SIZE + 65)
    flip(log_file(tmp_path), 4 * SIZE + 65)
    again, report = open_log(tmp_path, recovery_point=4)
    assert (kinds(report), again.log_end_offset, again.size) == (["rot", "cut"], 4, 4 * SIZE)


def test_a_segment_behind_a_lost_tail_goes_too(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    fill(log, 10)
    log_file(tmp_path).write_bytes(log_file(tmp_path).read_bytes()[: 2 * SIZE])
    again, report = open_log(tmp_path, SMALL)
    assert (offsets(again), kinds(report)) == ([0, 1], ["dropped", "dropped"])


def test_flushed_segments_are_not_walked(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    fill(log, 10)
    again, report = open_log(tmp_path, SMALL, recovery_point=9)
    assert (report.segments, report.segments_walked) == (3, 1)
    assert offsets(again) == list(range(10))


def test_missing_indexes_are_made_anew_after_a_clean_stop(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    fill(log, 10)
    log.close()
    expected = {path.name: path.read_bytes() for path in (tmp_path / "events-0").glob("*index")}
    for path in (tmp_path / "events-0").glob("*index"):
        path.unlink()
    again, report = open_log(tmp_path, SMALL, clean_shutdown=True, recovery_point=10)
    assert "rebuilt" in kinds(report)
    again.close()
    assert {path.name: path.read_bytes() for path in (tmp_path / "events-0").glob("*index")} == expected


def test_a_torn_tail_is_found_even_after_a_stop_that_says_it_was_clean(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 5)
    log.close()
    log_file(tmp_path).write_bytes(log_file(tmp_path).read_bytes()[:-10])
    again, report = open_log(tmp_path, clean_shutdown=True, recovery_point=5)
    assert (again.log_end_offset, kinds(report)) == (4, ["cut", "discarded"][: len(report.findings)])


def test_leftovers_of_interrupted_work_are_removed(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 2)
    leftovers = ("00000000000000000000.log.deleted", "x.tmp", "00000000000000000001.log.cleaned")
    orphan = "00000000000000000009.index"
    for name in (*leftovers, orphan):
        (tmp_path / "events-0" / name).write_bytes(b"old")
    again, _ = open_log(tmp_path)
    assert not [name for name in (*leftovers, orphan) if (tmp_path / "events-0" / name).exists()]
    assert offsets(again) == [0, 1]


def _with_producers(folder: Path) -> None:
    log, _ = open_log(folder, SMALL)
    for number in range(10):
        append(log, batch(producer=(5, 0, number)))
    log.close()


@pytest.mark.parametrize("damage", [None, b"", b"\0" * 56, b"garbage", b"\0\1" + b"\7" * 54])
def test_sequences_survive_any_damage_to_the_snapshots(tmp_path: Path, damage: bytes | None) -> None:
    _with_producers(tmp_path)
    for path in (tmp_path / "events-0").glob("*.snapshot"):
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage)
    log, report = open_log(tmp_path, SMALL)
    assert kinds(report) == ([] if damage is None else ["discarded"] * 3)
    again = Appender(log).append_as_leader(batch(producer=(5, 0, 9)), leader_epoch=0, now_ms=NOW_MS)
    assert (again.base_offset, again.batch_count) == (9, 0)
    with pytest.raises(OutOfOrderSequenceError):
        append(log, batch(producer=(5, 0, 11)))
    append(log, batch(producer=(5, 0, 10)))


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\0" * 30, b"0\n7\n0 0\n"])
def test_epochs_come_from_the_batches_when_their_checkpoint_is_unreadable(
    tmp_path: Path, damage: bytes
) -> None:
    log, _ = open_log(tmp_path)
    for epoch in (0, 0, 2, 5):
        Appender(log).append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
    (tmp_path / "events-0" / "leader-epoch-checkpoint").write_bytes(damage)
    again, _ = open_log(tmp_path)
    assert (again.latest_epoch, again.epoch_end_offset(0), again.epoch_end_offset(2)) == (5, (0, 2), (2, 3))


def test_epochs_of_lost_batches_are_forgotten(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    for epoch in (0, 3):
        Appender(log).append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
    log_file(tmp_path).write_bytes(log_file(tmp_path).read_bytes()[:SIZE])
    assert open_log(tmp_path)[0].latest_epoch == 0


def test_a_torn_batch_says_nothing_of_the_place_of_the_one_before(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    Appender(log).append_mirrored(batch(2, at=3), leader_epoch=0, now_ms=NOW_MS)
    Appender(log).append_mirrored(batch(1, at=5), leader_epoch=0, now_ms=NOW_MS)
    path = Path(log.directory) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    # Its page with the base offset was lost, and so was its end.
    data[second : second + 8] = bytes(8)
    data[-1] ^= 1
    path.write_bytes(data)
    again, _ = open_log(tmp_path, recovery_point=5)
    assert (offsets(again), again.log_end_offset) == ([3], 5)


@pytest.mark.parametrize(("number", "recovery_point"), [(0, 1), (3, 4)], ids=["older", "last"])
def test_rot_that_was_kept_is_told_again_after_a_clean_stop(
    tmp_path: Path, number: int, recovery_point: int
) -> None:
    config = LogConfig(segment_bytes=2 * SIZE, index_interval_bytes=SIZE)
    log, _ = open_log(tmp_path, config)
    fill(log, 4)
    flip(log_file(tmp_path, number - number % 2), number % 2 * SIZE + 65)
    damaged, first = open_log(tmp_path, config, recovery_point=recovery_point)
    damaged.close()
    again, report = open_log(tmp_path, config, recovery_point=4, clean_shutdown=True)
    assert kinds(first) == ["rot"]
    assert report.findings == first.findings
    assert (again.rotten_places, report.segments_walked) == (1, 0)


def test_rot_is_forgotten_once_its_bytes_are_right_again(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 4)
    for rotten_places in (1, 0):
        flip(log_file(tmp_path), SIZE + 65)
        log, _ = open_log(tmp_path, recovery_point=4, clean_shutdown=rotten_places == 0)
        assert log.rotten_places == rotten_places
        log.close()
    assert not (tmp_path / "events-0" / "rotten-segments").exists()


def test_an_unreadable_memory_of_rot_is_discarded(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 4)
    log.close()
    (tmp_path / "events-0" / "rotten-segments").write_text("0\n1\nmany\n")
    _, report = open_log(tmp_path, clean_shutdown=True)
    assert kinds(report) == ["discarded"]
    assert not (tmp_path / "events-0" / "rotten-segments").exists()
