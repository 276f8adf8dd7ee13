"""Transactions as a kind of coordinator: `__transaction_state`, its shards and where they have producer ids from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.config.sections import Transactions
from headrace.broker.coordinators.loader import LogLoader
from headrace.broker.coordinators.topics import transactions_topic
from headrace.broker.errors import ErrorCode
from headrace.broker.txn.events import Request, ShardLoaded
from headrace.broker.txn.machine import Shard
from headrace.broker.txn.refusals import refusal

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog


class TransactionKind:
    """`reply_timeout_ms` is how long a reply waits for what was appended to be committed."""

    name = "transaction"
    codec = 0

    def __init__(
        self, config: Transactions, next_producer_id: Callable[[], int | None], reply_timeout_ms: int
    ) -> None:
        self.topic = transactions_topic(config)
        self.reply_timeout_ms = reply_timeout_ms
        self._config = config
        self._next_producer_id = next_producer_id

    def shard(self) -> Shard:
        return Shard(self._config, self._next_producer_id)

    def loader(self, log: PartitionLog, shard: Shard) -> LogLoader:
        return LogLoader(self.name, log, shard)

    def loaded(self) -> ShardLoaded:
        return ShardLoaded()

    def refusal(self, request: Request[Any], error: ErrorCode) -> Any:
        return refusal(request, error)
