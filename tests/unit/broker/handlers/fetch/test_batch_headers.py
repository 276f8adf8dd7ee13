"""The walk from one header to the next, over logs on a disk, beside what their whole batches say."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from log_kit import NOW_MS, batch, open_log

from headrace.broker.handlers.fetch import batch_headers as tested
from headrace.broker.handlers.fetch.batch_headers import batch_headers
from headrace.broker.log.appender import Appender
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import LogSlice
from headrace.broker.wire.batches import HEADER_SIZE, iter_batches

PLENTY = 1 << 20


def log_of(folder: Path, sizes: list[int]) -> PartitionLog:
    log, _ = open_log(folder)
    appender = Appender(log)
    for size in sizes:
        appender.append_as_leader(batch(3, size=size), leader_epoch=0, now_ms=NOW_MS)
    return log


def whole(log: PartitionLog, size_max: int = PLENTY, offset: int = 0) -> LogSlice:
    return log.read(offset, size_max=size_max, upper_offset=log.log_end_offset)


def headers_in(found: LogSlice) -> bytes:
    content = found.read()
    return b"".join(content[place : place + HEADER_SIZE] for place, _ in iter_batches(content))


@pytest.mark.parametrize("read_size", [HEADER_SIZE, 200, 1024])
def test_headers_of_small_and_large_batches_are_those_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_size: int
) -> None:
    monkeypatch.setattr(tested, "_READ_SIZE", read_size)
    log = log_of(tmp_path, [1, 2, 3, 400, 5, 3000, 300, 1, 1, 1, 900])
    found = whole(log)
    headers, covered = batch_headers(found, PLENTY)
    assert headers.data == headers_in(found)
    assert (headers.size, covered) == (11 * HEADER_SIZE, found)


def test_as_many_are_given_as_are_asked_for_but_one_at_least(tmp_path: Path) -> None:
    log = log_of(tmp_path, [10] * 5)
    for size_max, count in ((0, 1), (HEADER_SIZE, 1), (2 * HEADER_SIZE - 1, 1), (3 * HEADER_SIZE, 3)):
        headers, covered = batch_headers(whole(log), size_max)
        assert headers.data == headers_in(whole(log))[: count * HEADER_SIZE]
        assert headers_in(covered) == headers.data


def test_a_batch_that_is_cut_off_has_no_header_told(tmp_path: Path) -> None:
    log = log_of(tmp_path, [10, 10])
    found = whole(log)
    headers, covered = batch_headers(found._replace(size=found.size - 1), PLENTY)
    assert headers.size == HEADER_SIZE
    assert covered.size == found.size // 2


@pytest.mark.parametrize(("at", "form", "value"), [(8, ">i", 5), (8, ">i", 1 << 30), (16, ">b", 1)])
def test_the_walk_ends_before_what_is_no_batch_of_this_format(
    tmp_path: Path, at: int, form: str, value: int
) -> None:
    log = log_of(tmp_path, [10, 10, 10])
    found = whole(log)
    size = found.size // 3
    assert found.file is not None
    found.file.write_at(struct.pack(form, value), size + at)
    headers, covered = batch_headers(found, PLENTY)
    assert (headers.size, covered.size) == (HEADER_SIZE, size)
    nothing, none = batch_headers(LogSlice(found.file, size, size), PLENTY)
    assert (nothing.size, none.size) == (0, 0)
