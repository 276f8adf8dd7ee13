"""The frames that are kept: what once broke something, in frame_corpus.txt."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).with_name("frame_corpus.txt")


class Entry(NamedTuple):
    """A frame without its size; `outcome` is answered or closed (its connection)."""

    name: str
    outcome: str
    data: bytes


def corpus() -> list[Entry]:
    """All of them."""
    lines = [line.split() for line in CORPUS.read_text().splitlines() if line and not line.startswith("#")]
    return [Entry(name, outcome, _unpacked(data)) for name, outcome, data in lines]


def _unpacked(text: str) -> bytes:
    """Hexadecimal; between bars, `xx*n` is n times the byte xx."""
    parts = (part.partition("*") for part in text.split("|"))
    return b"".join(bytes.fromhex(data) * int(count or 1) for data, _, count in parts)
