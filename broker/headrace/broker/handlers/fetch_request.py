"""What a Fetch request asks for, in whatever version it came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from headrace.broker.wire.batches import MAGIC
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.special_values import NO_EPOCH

NO_SESSION = 0
NO_SESSION_EPOCH = -1
INITIAL_SESSION_EPOCH = 0


class FetchPartition(NamedTuple):
    """One partition that is asked for; an epoch is -1 when the client does not know it.

    `log_start_offset` is where a follower's own log begins, -1 for who has none.
    """

    partition_index: int
    leader_epoch: int
    offset: int
    size_max: int
    last_fetched_epoch: int = NO_EPOCH
    log_start_offset: int = -1


class FetchTopic(NamedTuple):
    """A topic by name (below version 13) or by id; `key` is what the answer repeats: the name's bytes or the id's."""

    name: str | None
    topic_id: UUID | None
    key: bytes
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    """What matters of a request; `replica_id` is -1 for a consumer, `forgotten` are (topic's key, partition) (KIP-227).

    `replica_epoch` is the broker epoch of a follower, -1 when it does not tell (KIP-903), `rack` where a consumer is.
    `magic` is the newest message format that the client knows.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: tuple[tuple[bytes, int], ...] = ()
    replica_epoch: int = NO_EPOCH
    rack: str = ""
    magic: int = MAGIC

    # Whether only a leader may answer; from version 11 on consumers read from followers, too (KIP-392).
    is_from_leader: bool = True

    # Whether who asks may read a topic of that name; None: it may read all.
    may_read: Callable[[str], bool] | None = None

    # Whether a consumer wants the headers of batches without their records.
    wants_headers: bool = False

    @property
    def is_follower(self) -> bool:
        """Whether another broker asks, to have what this one has."""
        return self.replica_id >= 0


class AskedPartition:
    """One partition of a request, or of several: what is asked, and, if that was nothing yet, what it had (`kept`), of which
    topic and epoch. `lags`: a follower asks that is not in sync with it.
    """

    __slots__ = ("epoch", "kept", "lags", "name", "topic", "topic_id", "wanted")

    def __init__(self, topic: FetchTopic, name: str | None, wanted: FetchPartition) -> None:
        self.topic = topic
        self.name = name
        self.wanted = wanted
        self.epoch = NO_EPOCH
        self.topic_id = ZERO_UUID
        self.kept: Any = None
        self.lags = False
