"""What lies in a log's folder and is not what it seems: each of these was found by damaging folders beside Apache Kafka's."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from log_kit import NOW_MS, append, batch, fill, offsets, open_log

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.appender import Appender
from headrace.broker.log.checkpoints import (
    CheckpointError,
    decode_meta_properties,
    decode_offsets,
    encode_offsets,
)
from headrace.broker.log.files import OsFiles
from headrace.broker.log.names import OFFSET_MAX
from headrace.broker.log.partition_log import PartitionLog

SIZE = len(batch())
SMALL = LogConfig(segment_bytes=4 * SIZE, index_interval_bytes=SIZE, segment_index_bytes=4096)
COUNT = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a log with segments that begin at 0, 4 and 8, closed cleanly."""
    log, _ = open_log(tmp_path, SMALL)
    fill(log, COUNT)
    log.close()
    return tmp_path / "events-0"


def reopened(folder: Path) -> PartitionLog:
    return open_log(folder.parent, SMALL, clean_shutdown=True, recovery_point=COUNT)[0]


def path_of(folder: Path, base_offset: int, suffix: str = "log") -> Path:
    return folder / f"{base_offset:020d}.{suffix}"


@pytest.mark.parametrize(
    "suffix", ["log", "index", "snapshot", "log.deleted", "log.cleaned", "log.swap", "timeindex.swap", "tmp"]
)
def test_a_folder_with_the_name_of_a_file_is_somebody_elses(folder: Path, suffix: str) -> None:
    path_of(folder, 6, suffix).mkdir()
    assert offsets(reopened(folder)) == list(range(COUNT))
    assert path_of(folder, 6, suffix).is_dir()


def test_a_segment_that_somebody_put_aside_stays(folder: Path) -> None:
    aside = path_of(folder, 8, "log.tmp")
    aside.write_bytes(path_of(folder, 8).read_bytes())
    (folder / "leader-epoch-checkpoint.tmp").write_bytes(b"torn")
    reopened(folder)
    assert aside.stat().st_size == 2 * SIZE
    assert not (folder / "leader-epoch-checkpoint.tmp").exists()


def test_no_log_goes_where_offsets_end(folder: Path) -> None:
    for base_offset in (2**63 - 1, 10**20 - 1):
        path_of(folder, base_offset).touch()
    log = reopened(folder)
    assert log.log_end_offset == COUNT
    assert decode_offsets(encode_offsets({("events", 0): 2**63 - 1})) == {("events", 0): OFFSET_MAX}


@pytest.mark.parametrize("base_offset", [2**62, -1, 0])
def test_an_offset_that_rotted_spoils_no_index_that_is_made_anew(folder: Path, base_offset: int) -> None:
    path = path_of(folder, 4)
    data = bytearray(path.read_bytes())
    data[2 * SIZE : 2 * SIZE + 8] = struct.pack(">q", base_offset)
    path.write_bytes(data)
    path_of(folder, 4, "index").unlink()
    log = reopened(folder)
    assert log.log_end_offset == COUNT
    assert log.read(7, size_max=SIZE, upper_offset=COUNT).read()[:8] in (data[24:32], struct.pack(">q", 7))
    assert offsets(log)[-2:] == [8, 9]


@pytest.mark.parametrize("base_offset", [2**62, 2**33, 3])
def test_a_rotten_offset_at_the_end_moves_no_end(folder: Path, base_offset: int) -> None:
    path = path_of(folder, 8)
    data = bytearray(path.read_bytes())
    data[SIZE : SIZE + 8] = struct.pack(">q", base_offset)
    path.write_bytes(data)
    log = reopened(folder)
    assert log.log_end_offset == COUNT
    append(log, batch())
    assert offsets(log)[-1] == COUNT


@pytest.mark.parametrize("left", [1, SIZE // 2, SIZE - 1])
def test_readers_pass_over_a_batch_that_is_cut_by_the_end_of_a_segment(folder: Path, left: int) -> None:
    path = path_of(folder, 4)
    path.write_bytes(path.read_bytes()[: 2 * SIZE + left])
    log = reopened(folder)
    assert log.read(6, size_max=SIZE, upper_offset=COUNT).read()[:8] == struct.pack(">q", 8)


def test_a_description_of_the_directory_is_whatever_java_reads() -> None:
    assert decode_meta_properties(b"broker.id : 1\r\ncluster.id=a\\:b\nversion 0\n\xff\n") == {
        "broker.id": "1",
        "cluster.id": "a:b",
        "version": "0",
        "\xff": "",
    }
    with pytest.raises(CheckpointError):
        decode_meta_properties(b"cluster.id=\\uzzzz")


def test_epochs_begin_where_the_log_does(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    for epoch in (0, 1, 4):
        for _ in range(2):
            Appender(log).append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
    again, _ = PartitionLog.open(
        OsFiles(), log.directory, LogConfig(), now_ms=NOW_MS, recovery_point=6, log_start_offset=3
    )
    assert again.body.epochs.entries == [(1, 3), (4, 4)]
    assert again.epoch_end_offset(0) == (0, 3)


def test_the_epoch_of_a_record_found_by_time_is_its_batchs(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    for number in range(4):
        Appender(log).append_as_leader(
            batch(timestamp_ms=NOW_MS + number), leader_epoch=number, now_ms=NOW_MS
        )
    # As a checkpoint that is ahead of the log start offset's says.
    Path(log.directory, "leader-epoch-checkpoint").write_text("0\n1\n3 3\n")
    again, _ = open_log(tmp_path, clean_shutdown=True, recovery_point=4)
    assert again.offset_for_timestamp(NOW_MS + 1) == (1, NOW_MS + 1, 1)
    assert again.latest_timestamp_offset() == (3, NOW_MS + 3, 3)


@pytest.mark.parametrize("epoch", [0, 2, 0x0202])
def test_rot_hides_no_batch_whose_epoch_looks_like_a_format(tmp_path: Path, epoch: int) -> None:
    log, _ = open_log(tmp_path)
    for _ in range(5):
        Appender(log).append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
    path = path_of(Path(log.directory), 0)
    data = bytearray(path.read_bytes())
    data[SIZE + 8 : SIZE + 12] = b"rot!"
    path.write_bytes(data)
    again, report = open_log(tmp_path, recovery_point=5)
    assert [(finding.kind, finding.size) for finding in report.findings] == [("rot", SIZE)]
    assert (path.read_bytes(), again.log_end_offset) == (bytes(data), 5)


def test_a_hole_that_compaction_left_is_no_rot(tmp_path: Path) -> None:
    """The recovery point on the disk may be that of a segment which has become part of another one."""
    config = LogConfig(segment_bytes=2 * SIZE, cleanup_policy=("compact",))
    log, _ = open_log(tmp_path, config)
    for base_offset in (0, 6, 8, 9):
        Appender(log).append_mirrored(batch(at=base_offset), leader_epoch=0, now_ms=NOW_MS)
    again, report = open_log(tmp_path, config, recovery_point=3)
    assert (offsets(again), report.findings) == ([0, 6, 8, 9], [])
