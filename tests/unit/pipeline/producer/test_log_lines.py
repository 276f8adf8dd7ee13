"""Reading a log line by line in bounded memory."""

from __future__ import annotations

import hashlib
import io

import pytest

from headrace.events.access_log import LINE_SIZE_MAX
from headrace.producer.log_lines import LogLine, read_lines


def lines(content: bytes) -> list[LogLine]:
    return list(read_lines(io.BytesIO(content)))


def test_lines_come_without_their_ends_and_the_last_needs_none() -> None:
    assert [line.head for line in lines(b"a\nb\r\n\nlast")] == [b"a", b"b", b"", b"last"]
    assert lines(b"") == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
@pytest.mark.parametrize(
    "size",
    [LINE_SIZE_MAX - 1, LINE_SIZE_MAX, LINE_SIZE_MAX + 1, 3 * LINE_SIZE_MAX + 7, 2 * LINE_SIZE_MAX + 2],
)
def test_a_line_of_any_length_has_its_size_digest_and_a_bounded_head(size: int, end: bytes) -> None:
    content = (b"0123456789" * (size // 10 + 1))[:size]
    long, after = lines(content + end + b"after") if end else (*lines(content), None)
    assert long is not None
    assert (long.size, long.sha256) == (size, hashlib.sha256(content).hexdigest())
    assert len(long.head) <= LINE_SIZE_MAX + 1
    assert content.startswith(long.head)
    assert after is None or after.head == b"after"


def test_a_carriage_return_within_a_long_line_belongs_to_it() -> None:
    content = b"a" * LINE_SIZE_MAX + b"\r" + b"b" * 10
    [line] = lines(content + b"\r\n")
    assert (line.size, line.sha256) == (len(content), hashlib.sha256(content).hexdigest())
