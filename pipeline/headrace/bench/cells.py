"""The cells of the table: what each one runs and what it records.

A cell's raw run holds messages, payload bytes, wall seconds, and the broker's own CPU seconds and resident memory, so
that every figure of the page can be derived again. The generator shares the machine's cores with the broker.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.bench.generator import Outcome, run
from headrace.bench.machine import cpu_seconds
from headrace.bench.peers import Peer

MESSAGE_SIZE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceCell:
    """Publish `messages` of 200 B in batches of `batch` (0: up to 1 MB), then stop the clock at the last reply."""

    name: str
    batch: int
    messages: int
    partitions: int = 1
    acks: str = "1"
    codec: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCell:
    """Read everything a produce cell of the same round wrote, from the page cache."""

    name: str
    batch: int
    messages: int
    partitions: int = 1


BROKER_CELLS: tuple[ProduceCell | FetchCell, ...] = (
    ProduceCell(name="produce, batch of 1", batch=1, messages=200_000),
    ProduceCell(name="produce, batch of 50", batch=50, messages=2_000_000),
    ProduceCell(name="produce, 1 MB batches", batch=0, messages=4_000_000),
    FetchCell(name="fetch from cache", batch=0, messages=4_000_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRun:
    """One measured run of one cell against one peer."""

    cell: str
    peer: str
    round: int
    messages: int
    bytes: int
    seconds: float
    cpu_seconds: float
    memory_mib: int

    def as_json(self) -> dict[str, str | int | float]:
        """The run as it is kept beside the page."""
        return asdict(self)


def measure(cell: ProduceCell | FetchCell, peer: Peer, round_number: int, generator: Path) -> RawRun:
    """Run one cell against a running peer on a topic of its own."""
    topic = f"bench-{round_number}-{cell.batch}"
    if isinstance(cell, ProduceCell):
        arguments: tuple[str | int, ...] = (
            *("produce", peer.bootstrap, topic, cell.partitions, cell.messages, MESSAGE_SIZE),
            *(cell.batch, cell.acks, cell.codec),
        )
    else:
        arguments = ("consume", peer.bootstrap, topic, cell.partitions, cell.messages)
    before = cpu_seconds(peer.process)
    outcome: Outcome = run(generator, *arguments)
    return RawRun(
        cell=cell.name,
        peer=peer.name,
        round=round_number,
        messages=outcome.messages,
        bytes=outcome.bytes,
        seconds=outcome.seconds,
        cpu_seconds=round(cpu_seconds(peer.process) - before, 4),
        memory_mib=peer.process.memory_info().rss // 2**20,
    )
