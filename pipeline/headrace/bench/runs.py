"""What one measured run is, and how a cell is asked for one.

A raw run holds messages, payload bytes, wall seconds, CPU seconds and resident memory, so that every figure of the page
can be derived again. Must not know what a cell measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

MESSAGE_SIZE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRun:
    """One run of one cell against one peer; 0 messages where none flow, as at a start."""

    cell: str
    peer: str
    round: int
    messages: int
    bytes: int
    seconds: float
    cpu_seconds: float
    memory_mib: int
    settings: Mapping[str, str | int]

    def as_json(self) -> dict[str, object]:
        """The run as it is kept beside the page."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What every cell of a round is given."""

    generator: Path
    data: Path
    """An empty folder of this round; its content outlives only a failure."""
    round: int


class Group(Protocol):
    """Cells that share a table, a raw file and, within a round, their processes."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def note(self) -> str:
        """What holds for all cells, and whose CPU and memory count."""
        ...

    @property
    def cells(self) -> tuple[str, ...]: ...

    def measure(self, wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
        """Run the wanted cells once, in order."""
        ...
