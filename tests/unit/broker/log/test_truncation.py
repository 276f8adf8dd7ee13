"""What a truncation took away stays away, whatever a power cut brings back, and what it left is looked at."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from faulty_files import FaultyFiles
from log_kit import NOW_MS, append, batch, fill, offsets, open_log, roll

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import OutOfOrderSequenceError
from headrace.broker.log.results import LogSlice
from headrace.broker.log.snapshots import ProducerSnapshots
from headrace.broker.log.truncation import truncate_to

END = 10
ROLLS = LogConfig(segment_ms=1000)
POWER_CUTS = 20


def grown_past_its_old_end() -> FaultyFiles:
    """A log that was cut from 10 to 5, behind a flushed snapshot at 10, and has other batches up to 15 now."""
    files = FaultyFiles()
    files.make_directory("/data")
    log, _ = open_log(Path("/data"), ROLLS, files=files)
    append(log, *(batch(producer=(5, 0, sequence)) for sequence in range(END)))
    roll(log, NOW_MS + 10_000)
    flush = log.flush_task()
    assert flush is not None
    log.flushed(flush())
    truncate_to(log, 5)
    append(log, batch(10, producer=(6, 0, 0)))
    # As the kernel does it some day, of its own accord.
    files.open("/data/events-0/00000000000000000000.log").sync()
    return files


def producer_goes_on(seed: int) -> bool:
    """Whether producer 5, whose last batch that is left has sequence 4, may go on after a power cut."""
    files = grown_past_its_old_end()
    files.crash(Random(seed))
    log, _ = open_log(Path("/data"), ROLLS, files=files)
    assert log.log_end_offset == 15
    try:
        append(log, batch(producer=(5, 0, 5)))
    except OutOfOrderSequenceError:
        return False
    return True


def test_a_snapshot_above_the_new_end_does_not_come_back() -> None:
    assert all(producer_goes_on(seed) for seed in range(POWER_CUTS))


def test_without_a_sync_of_its_removal_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(snapshots: ProducerSnapshots, end_offset: int) -> None:
        snapshots.remove(lambda offset: offset > end_offset)

    monkeypatch.setattr(ProducerSnapshots, "_forget_above", remove)
    assert not all(producer_goes_on(seed) for seed in range(POWER_CUTS))


def test_an_index_that_cannot_be_of_its_log_is_made_anew_before_a_truncation_makes_its_segment_the_active_one(
    tmp_path: Path,
) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=1)
    log, _ = open_log(tmp_path, config)
    for _ in range(40):
        append(log, batch())
    assert log.segment_count > 2
    log.close()
    damaged = Path(log.directory, "00000000000000000000.index")
    damaged.write_bytes(b"\xff" * 8 * 4)
    log, report = open_log(tmp_path, config, recovery_point=40, clean_shutdown=True)
    assert [finding.path for finding in report.findings if finding.kind == "rebuilt"] == [str(damaged)]
    truncate_to(log, 9)
    append(log, *(batch() for _ in range(3)))
    assert offsets(log) == list(range(12))


def test_a_time_index_of_nonsense_is_made_anew_when_a_truncation_makes_its_segment_the_active_one(
    tmp_path: Path,
) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=1)
    log, _ = open_log(tmp_path, config)
    fill(log, 40)
    log.close()
    nonsense = struct.pack(">qiqi", 2**60, -9, 2**59, -7)
    Path(log.directory, "00000000000000000000.timeindex").write_bytes(nonsense)
    log, _ = open_log(tmp_path, config, recovery_point=40, clean_shutdown=True)
    truncate_to(log, 9)
    fill(log, 3)
    log.close()
    log, report = open_log(tmp_path, config, recovery_point=12, clean_shutdown=True)
    assert (report.segments_walked, report.findings) == (0, [])
    assert log.offset_for_timestamp(NOW_MS + 5000) == (5, NOW_MS + 5000, 0)


@pytest.mark.parametrize("rolls", [False, True])
def test_slices_that_hold_something_of_what_is_cut_are_known_and_no_others(
    tmp_path: Path, rolls: bool
) -> None:
    log, _ = open_log(tmp_path, ROLLS)
    append(log, *(batch() for _ in range(10)))
    if rolls:
        roll(log, NOW_MS + 10_000)
        append(log, *(batch() for _ in range(3)))
    end = log.log_end_offset
    below, across = (log.read(0, size_max=10**6, upper_offset=offset) for offset in (7, 8))
    truncate_to(log, 7)
    append(log, *(batch(size=20) for _ in range(9)))

    def is_good(part: LogSlice) -> bool:
        assert part.file is not None
        return part.position + part.size <= part.file.cut_at

    after = log.read(0, size_max=10**6, upper_offset=log.log_end_offset)
    assert (is_good(below), is_good(across), is_good(after), end) == (True, False, True, 13 if rolls else 10)
    assert after.read()[: below.size] == below.read()
