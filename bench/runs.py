"""What one measured run is, and how a cell is asked for one.

A raw run holds messages, payload bytes, wall seconds, CPU seconds and resident memory, so that every figure of the page
can be derived again. Must not know what a cell measures.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

MESSAGE_SIZE = 200
HEADRACE = "headrace"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRun:
    """One run of one cell against one peer; 0 messages where none flow, as at a start.

    Runs of two peers with the same cell and round are a pair: they were made one right after the other.
    """

    cell: str
    peer: str
    round: int
    messages: int
    bytes: int
    seconds: float
    cpu_seconds: float
    memory_mib: int
    settings: Mapping[str, str | int] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    """What only some cells have: percentiles of latency in ms."""

    def as_json(self) -> dict[str, object]:
        """The run as it is kept beside the page."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How often and how long each cell runs."""

    rounds: int
    pairs: int
    seconds: float
    warm_up_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What every cell of a group is given."""

    generator: Path
    data: Path
    """An empty folder; its content outlives only a failure."""
    effort: Effort
    kafka_jars: Path | None
    """None: headrace is measured alone."""
    say: Callable[[str], None]
    """Tells the person who waits what goes on."""

    @contextlib.contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        """An empty folder; it goes with its content unless the work in it fails."""
        path = self.data / name
        path.mkdir()
        yield path
        shutil.rmtree(path, ignore_errors=True)


class Group(Protocol):
    """Cells that share a part of the system and, within a run, their processes."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def note(self) -> str:
        """What holds for all cells, and whose CPU and memory count if not the broker's."""
        ...

    @property
    def cells(self) -> tuple[str, ...]:
        """The names of its cells, in the order of the page."""
        ...

    def expected(self, cell: str, workshop: Workshop) -> tuple[int, float]:
        """How many runs a cell yields, and about how many seconds they all take."""
        ...

    def measure(self, wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
        """Run the wanted cells in order, as often as the effort says."""
        ...
