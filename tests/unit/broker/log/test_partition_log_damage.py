"""Damage of every kind at every byte: what a crash may leave is cut, what rots is kept, hints may be anything."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from log_kit import NOW_MS, append, batch, fill, offsets, open_log, open_store
from long_runs import first_of

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import OutOfOrderSequenceError
from headrace.broker.log.appender import Appender
from headrace.broker.log.index import OffsetIndex
from headrace.broker.log.partition_log import PartitionLog

SIZE = len(batch())
SMALL = LogConfig(segment_bytes=4 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=4096)
COUNT = 10
LENGTH, MAGIC, LAST_OFFSET_DELTA = range(8, 12), 16, range(23, 27)


@pytest.fixture(autouse=True)
def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here depends on when the disk has what was written."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def tails(size: int) -> list[bytes]:
    """What a power cut may leave in the place of the last `size` bytes."""
    return [b"", b"\0" * size, b"\xff" * size, bytes(range(1, 200)) * 3]


@pytest.mark.parametrize("kind", range(4), ids=["cut", "zeroed", "ones", "garbage"])
@pytest.mark.parametrize("count", [6, 5], ids=["one segment", "a segment each"])
@pytest.mark.parametrize("step", first_of(1, [5, 1]))
def test_any_end_of_the_last_two_batches_loses_only_those_it_hits(
    tmp_path: Path, kind: int, count: int, step: int
) -> None:
    log, _ = open_log(tmp_path, SMALL)
    fill(log, count)
    whole = contents(tmp_path / "events-0")
    for size in range((count - 2) * SIZE, count * SIZE, step):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "events-0", copy / "events-0")
        damage_from(copy / "events-0", size, tails(count * SIZE - size)[kind])
        left = contents(copy / "events-0")
        # A tail may happen to be what was there.
        unhurt = next(
            n for n in range(count + 1) if n == count or not left.startswith(whole[: (n + 1) * SIZE])
        )
        again, report = open_log(copy, SMALL)
        assert offsets(again) == list(range(unhurt)), size
        assert again.log_end_offset == unhurt >= size // SIZE
        assert {finding.kind for finding in report.findings} <= {"cut", "dropped"}
        append(again, batch())
        assert offsets(again) == list(range(unhurt + 1))
        shutil.rmtree(copy)


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def damage_from(folder: Path, position: int, tail: bytes) -> None:
    """Put `tail` where the log's bytes from `position` on lie, over as many files as those are."""
    for path in sorted(folder.glob("*.log")):
        start = int(path.name[:20]) * SIZE
        data = path.read_bytes()
        keep = max(0, min(position - start, len(data)))
        if keep < len(data):
            path.write_bytes(data[:keep] + tail)


@pytest.mark.parametrize("number", [0, 2, 5])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_bit_that_flips_anywhere_in_a_flushed_log_is_reported_served_and_never_cut(
    tmp_path: Path, bit: int, number: int
) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 6)
    path = tmp_path / "events-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    # The leader epoch lies outside of the checksum; who needs it has the checkpoint.
    for byte in [byte for byte in range(SIZE) if not 12 <= byte < 16]:
        rotten = bytearray(whole)
        rotten[number * SIZE + byte] ^= 1 << bit
        path.write_bytes(rotten)
        again, report = open_log(tmp_path, recovery_point=6)
        found = [(finding.kind, finding.position, finding.size) for finding in report.findings]
        if number == 5 and (byte in LENGTH or byte == MAGIC):
            assert found == [("cut", 5 * SIZE, SIZE)], "nothing tells where it ends"
            path.write_bytes(whole)
            continue
        assert found == [("rot", number * SIZE, SIZE)], byte
        assert (path.read_bytes(), again.log_end_offset) == (bytes(rotten), 6)
        if byte > MAGIC and byte not in LAST_OFFSET_DELTA:
            served = again.read(0, size_max=10 * SIZE, upper_offset=6).read()
            assert served == bytes(rotten), "a fetch gets what lies there, and its checksum tells"
            for offset in (number, 5):
                found_there = again.read(offset, size_max=SIZE, upper_offset=6).read()
                assert found_there == rotten[offset * SIZE : (offset + 1) * SIZE]


@pytest.mark.parametrize("suffix", ["index", "timeindex", "snapshot"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: None,
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"\0" * len(data),
        lambda data: b"garbage" * 20,
    ],
    ids=["missing", "empty", "half", "zeroed", "garbage"],
)
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("which", ["each", "last", "all"])
def test_hints_may_be_missing_or_anything(
    tmp_path: Path, suffix: str, damage: Callable[[bytes], bytes | None], is_clean: bool, which: str
) -> None:
    log, _ = open_log(tmp_path, SMALL)
    for number in range(COUNT):
        append(log, batch(timestamp_ms=NOW_MS + number * 1000, producer=(5, 0, number)))
    if is_clean:
        log.close()
    paths = sorted((tmp_path / "events-0").glob(f"*.{suffix}"))
    assert len(paths) > 1
    chosen = {"each": [[path] for path in paths[:-1]], "last": [paths[-1:]], "all": [paths]}[which]
    for number, hit in enumerate(chosen):
        copy = tmp_path / str(number)
        shutil.copytree(tmp_path / "events-0", copy / "events-0")
        for path in hit:
            spoil(copy / "events-0" / path.name, damage)
        again, report = open_log(
            copy, SMALL, clean_shutdown=is_clean, recovery_point=COUNT if is_clean else 0
        )
        assert report.bytes_cut == 0
        check_everything(again)


def spoil(path: Path, damage: Callable[[bytes], bytes | None]) -> None:
    data = damage(path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)


def check_everything(log: PartitionLog) -> None:
    """Every offset, time and sequence is where it was."""
    assert offsets(log) == list(range(COUNT))
    for number in range(COUNT):
        time_ms = NOW_MS + number * 1000
        assert log.offset_for_timestamp(time_ms) == (number, time_ms, 0)
    with pytest.raises(OutOfOrderSequenceError):
        append(log, batch(producer=(5, 0, COUNT + 1)))
    repeated = Appender(log).append_as_leader(
        batch(producer=(5, 0, COUNT - 1)), leader_epoch=0, now_ms=NOW_MS
    )
    assert (repeated.base_offset, repeated.batch_count) == (COUNT - 1, 0)
    append(log, batch(producer=(5, 0, COUNT)))


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crash"])
def test_missing_checkpoints_cost_a_longer_recovery_but_no_data(tmp_path: Path, is_clean: bool) -> None:
    store = open_store(tmp_path, config=SMALL)[0]
    log = store.create("events", 0, None, now_ms=NOW_MS)
    fill(log, COUNT)
    store.checkpoint()
    if is_clean:
        store.close()
    for path in tmp_path.glob("**/*checkpoint"):
        path.unlink()
    again = open_store(tmp_path, config=SMALL)[0].get("events", 0)
    assert again is not None
    assert (offsets(again), again.log_end_offset) == (list(range(COUNT)), COUNT)
    append(again, batch())


def test_an_index_that_cannot_be_written_takes_no_batch_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(tmp_path, LogConfig(index_interval_bytes=0, segment_index_bytes=4096))
    fill(log, 3)

    def full(index: OffsetIndex, offset: int, position: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(OffsetIndex, "add", full)
        fill(log, 3)
    fill(log, 3)
    assert (log.log_end_offset, offsets(log)) == (9, list(range(9)))
    again, report = open_log(tmp_path)
    assert (offsets(again), report.findings) == (list(range(9)), [])
