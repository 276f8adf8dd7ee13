"""Reads a log file line by line in bounded memory, however long a line is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from headrace.events.access_log import LINE_SIZE_MAX

KEPT_SIZE_MAX: Final = 64 * 1024
"""What the dead-letter topic keeps of a rejected line (bytes)."""

_HEAD_SIZE: Final = LINE_SIZE_MAX + 1


class LogLine(NamedTuple):
    """A line without its end: its beginning (all of it up to LINE_SIZE_MAX bytes), its size and its SHA-256."""

    head: bytes
    size: int
    long_digest: str | None

    @property
    def sha256(self) -> str:
        return self.long_digest or hashlib.sha256(self.head).hexdigest()


def read_lines(file: BinaryIO) -> Iterator[LogLine]:
    """Yield the lines of a binary file; the last one needs no line end."""
    while piece := file.readline(_HEAD_SIZE):
        if len(piece) < _HEAD_SIZE or piece.endswith(b"\n"):
            line = piece.rstrip(b"\r\n")
            yield LogLine(line, len(line), None)
        else:
            yield _long_line(file, piece)


def _long_line(file: BinaryIO, head: bytes) -> LogLine:
    digest = hashlib.sha256()
    size, piece = 0, head
    while True:
        # A carriage return may be the line's own or the first half of its end: the next piece tells.
        rest = file.readline(_HEAD_SIZE) if not piece.endswith(b"\n") else b""
        if piece.endswith(b"\r") and rest == b"\n":
            piece, rest = piece[:-1], b""
        content = piece if rest else piece.rstrip(b"\r\n")
        digest.update(content)
        size += len(content)
        if not rest:
            return LogLine(head[:size], size, digest.hexdigest())
        piece = rest
