"""A partition that this member owns: its stream, once it is known how far it is, and what people are told of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.aggregate.position import Position
from headrace.mirror.aggregate.search import Search
from headrace.mirror.aggregate.stream import Phase, Stream
from headrace.mirror.copy.copier import PAUSED
from headrace.mirror.copy.progress import Progress
from headrace.mirror.memory.state import NO_ID
from headrace.mirror.pause import Pause


@dataclass(eq=False, kw_only=True)
class Held:
    """`is_idle` is set while no round has it; one that is leaving or paused is in no further round. `leader` is -1 without one,
    `written` is what the offset registry has, `told` the last stop that the log has a line of. `search` is under way where the
    target has more than is known, or has forgotten the producer; one that told nothing is kept for as long as the position is.
    """

    key: PartitionKey
    pause: Pause
    progress: Progress
    topic_id: UUID = NO_ID
    leader: int = -1
    leader_epoch: int = -1
    stream: Stream | None = None
    search: Search | None = None
    located_ms: int = 0
    version: int = 0
    written_ms: int = 0
    written: Position | None = None
    is_leaving: bool = False
    is_paused: bool = False
    problem: str = ""
    told: str = ""
    is_idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.is_idle.set()

    @property
    def condition(self) -> str:
        if self.is_paused:
            return PAUSED
        return Phase.LOCATING.value if self.stream is None else self.stream.phase.value

    @property
    def reason(self) -> str:
        """Why it does not go on, or nothing."""
        return self.problem or (self.stream.problem if self.stream is not None else "")

    @property
    def rotten(self) -> str:
        """The offsets at which it stopped as rotten, as `--offsets` takes them, or nothing."""
        rot = self.stream.rotten if self.stream is not None else None
        return rot.offsets if rot is not None and self.condition == Phase.STOPPED else ""

    def lag_messages(self, now_ms: int) -> int | None:
        """Offsets of the source that are not in the target yet; None when nobody knows."""
        if self.stream is None or self.stream.phase is Phase.STOPPED:
            return None
        return self.progress.lag_messages(self.stream.position.offset, now_ms)

    def lag_ms(self, now_ms: int) -> int | None:
        if self.stream is None or self.stream.phase is Phase.STOPPED:
            return None
        return self.progress.lag_ms(self.stream.position.offset, now_ms)

    def failed(self, reason: str, now_ms: int) -> None:
        """Something went wrong on the way: it is located anew after a pause."""
        self.problem = reason
        self.pause.begin(now_ms)
        self.search = None
        if self.stream is not None:
            self.stream.refused(reason)

    def begins(self, position: Position, version: int) -> None:
        """The offset registry has this."""
        if position != self.written:
            self.search = None
        self.stream, self.written, self.version = Stream(position), position, version

    def is_ahead(self, next_sequence: int | None) -> bool:
        """Whether the target has, or may have, something beyond the position: what of it is committed has to be looked up."""
        return self.stream is not None and (
            next_sequence is None or self.stream.position.ahead(next_sequence) > 0
        )

    @property
    def is_written(self) -> bool:
        """Whether the offset registry says how far it is."""
        return self.stream is None or self.stream.position == self.written
