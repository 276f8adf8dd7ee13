"""What a fetch plan and its surroundings say to each other: commands to a connection, the time, copiers as they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headrace.broker.wire.client.replica_fetch import ReplicaFetchRequest
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.questions import Fetch, Located, Survey, Surveyed


class Now(NamedTuple):
    """`wall_ms` is what records and copiers carry, `ms` never goes back."""

    wall_ms: int
    ms: int


class Asking(Protocol):
    """A copier as far as it is asked and told here."""

    @property
    def located_at(self) -> Located | None:
        """Where metadata shows its partition; the same object for as long as nothing changes there."""
        ...

    @property
    def awaits_metadata(self) -> bool:
        """Whether it has nothing to ask before it is located anew."""
        ...

    def wants(self, now_ms: int) -> Survey | Fetch | None: ...

    def fetched(
        self, request: Fetch, records: memoryview, *, high_watermark: int, log_start_offset: int, now_ms: int
    ) -> None: ...

    def unchanged(self, now_ms: int) -> None: ...

    def surveyed(self, request: Survey, found: Surveyed, now_ms: int) -> None: ...

    def refused(self, request: Survey | Fetch, code: int, now_ms: int) -> None: ...

    def failed(self, reason: str, now_ms: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Open:
    """Connect, and say so."""


@dataclass(frozen=True, slots=True)
class Close:
    """The connection was of no use for a while, and brokers close those."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Until something is heard, at most so long."""

    ms: float


@dataclass(frozen=True, slots=True)
class AskFetch:
    """`version` is the highest that names topics as the request does."""

    request: ReplicaFetchRequest
    version: int


@dataclass(frozen=True, slots=True)
class AskSurvey:
    asked: Mapping[PartitionKey, Survey]


Command = Open | Close | Wait | AskFetch | AskSurvey
