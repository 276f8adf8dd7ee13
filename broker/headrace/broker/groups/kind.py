"""Groups as a kind of coordinator: `__consumer_offsets`, its shards and what they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.config.sections import Groups
from headrace.broker.coordinators.loader import LogLoader
from headrace.broker.coordinators.topics import offsets_topic
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import Request, ShardLoaded
from headrace.broker.groups.machine import Shard
from headrace.broker.groups.memory import MembersMemory
from headrace.broker.groups.refusals import refusal

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog


class GroupKind:
    """All shards share one bound on the memory of their members."""

    name = "group"

    def __init__(self, config: Groups) -> None:
        self.topic = offsets_topic(config)
        self._config = config
        self._memory = MembersMemory()

    @property
    def codec(self) -> int:
        return self._config.offsets_topic_compression_codec

    @property
    def reply_timeout_ms(self) -> int:
        return self._config.offsets_commit_timeout_ms

    def shard(self) -> Shard:
        return Shard(self._config, self._memory)

    def loader(self, log: PartitionLog, shard: Shard) -> LogLoader:
        return LogLoader(self.name, log, shard)

    def loaded(self) -> ShardLoaded:
        return ShardLoaded()

    def refusal(self, request: Request[Any], error: ErrorCode) -> Any:
        return refusal(request, error)
