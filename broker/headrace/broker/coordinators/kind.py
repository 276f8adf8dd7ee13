"""What a kind of coordinator brings to the runtime: its topic, its shards, how they are loaded, what the refused hear.

And what the runtime needs of the broker: a journal for each partition of the topic that this broker leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace.broker.coordinators.decision import Decision
from headrace.broker.coordinators.records import Record
from headrace.broker.coordinators.topics import StateTopic
from headrace.broker.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog

Event = TypeVar("Event", contravariant=True)
Decided = TypeVar("Decided", bound=Decision[Any])


class Shard(Protocol[Event, Decided]):
    """The state of one partition: decided upon, then changed by what is in the log."""

    def __len__(self) -> int:
        """How many things it keeps, as the log lines tell them."""
        ...

    def decide(self, event: Event, now_ms: int, token: int = 0) -> Decided:
        """What the event asks for; nothing has changed. A request is answered, now or later, by a reply to `token`."""
        ...

    def append_failed(
        self, event: Event, decision: Decided, error: ErrorCode, now_ms: int, token: int = 0
    ) -> Decided:
        """Decide again, without records, after the log refused those of `decision`."""
        ...

    def adopt(self, decision: Decided) -> None:
        """Take over what no record keeps."""
        ...

    def apply(self, record: Record) -> None:
        """Change by one record that is in the log."""
        ...

    def release(self) -> None:
        """Give back what it takes of memory that shards share: it is not used any more."""
        ...


ShardType = TypeVar("ShardType", bound=Shard[Any, Any])


class Loader(Protocol):
    """The position in the replay of one partition into a shard."""

    record_count: int
    skipped_count: int

    def load_slice(self) -> bool:
        """Replay a bounded piece; True when the log's end is reached. Raises KafkaError when the disk does not answer."""
        ...


class Kind(Protocol[ShardType]):
    """A coordinator; `name` is what it keeps, in the singular, for log lines."""

    name: str
    topic: StateTopic

    @property
    def codec(self) -> int:
        """The compression of what is appended."""
        ...

    @property
    def reply_timeout_ms(self) -> int:
        """How long a reply waits for what was appended to be committed."""
        ...

    def shard(self) -> ShardType:
        """One that has seen no record yet; shards may share memory."""
        ...

    def loader(self, log: PartitionLog, shard: ShardType) -> Loader:
        """The replay of a partition from its beginning."""
        ...

    def loaded(self) -> Any:
        """The event that a shard hears first, once it is loaded."""
        ...

    def refusal(self, request: Any, error: ErrorCode) -> Any:
        """The answer that says `error`, in the request's own form."""
        ...


class Journal(Protocol):
    """A partition of the topic that this broker leads; another partition is another journal."""

    @property
    def index(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def log(self) -> PartitionLog: ...

    def append(self, batch: bytearray, now_ms: int) -> None:
        """A batch, in a producer's transaction or not. Raises KafkaError when it is refused."""
        ...

    @property
    def is_committed(self) -> bool:
        """Whether all that has been appended is."""
        ...

    def when_committed(self, told: Callable[[bool], None], timeout_ms: int) -> None:
        """Call `told(True)` once all that has been appended is committed, at once when it is, or `told(False)` when
        `timeout_ms` are over.
        """
        ...
