"""Producer ids for idempotent producers, from blocks of `/latest_producer_id_block` that this broker alone
owns.

Invariants: no id is given twice, in this broker or another, also after a crash (what is left of a block is
lost); one block is being fetched at a time, the next one before the present one is used up; nobody waits for one: as
with Apache Kafka, a client that comes while there is none is told to come again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from headrace.broker.server.membership import Membership
from headrace.broker.structured_log import get_logger
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZnodeVersionError, ZooKeeperClient

PREFETCH_SHARE = 0.9
BLOCK_SIZE = 1000

logger = get_logger(__name__)


class ProducerIds:
    """Hands out the ids of the current block and fetches the next one when that is nearly used up.

    `allocate` answers (first id, count) of a new block; `run` runs a coroutine on the broker's loop.
    """

    def __init__(
        self,
        allocate: Callable[[], Awaitable[tuple[int, int]]],
        run: Callable[[Coroutine[Any, Any, Any]], Deferred[Any]],
    ) -> None:
        self._allocate = allocate
        self._run = run
        self._ids = range(0)
        self._next_ids = range(0)
        self._fetch_at = 0
        self._fetching = False

    def next_id(self) -> int | None:
        """An id that no other producer of the cluster has; None while a block is being fetched (try again)."""
        if not self._ids:
            self._ids, self._next_ids = self._next_ids, range(0)
            self._fetch_at = self._ids.start + int(len(self._ids) * PREFETCH_SHARE)
        if not self._ids:
            self._fetch()
            return None
        producer_id = self._ids[0]
        self._ids = self._ids[1:]
        if producer_id == self._fetch_at:
            self._fetch()
        return producer_id

    def _fetch(self) -> None:
        if not self._fetching and not self._next_ids:
            self._fetching = True
            self._run(self._fetch_block()).then(lambda _: None, lambda _: None)

    async def _fetch_block(self) -> None:
        try:
            first, count = await self._allocate()
        except Exception as error:
            logger.warning("no producer id block", reason=str(error))
        else:
            self._next_ids = range(first, first + count)
        finally:
            self._fetching = False


class ProducerIdBlocks:
    """Blocks of ids from ZooKeeper, for the broker that `membership` names."""

    def __init__(self, zookeeper: ZooKeeperClient, membership: Membership) -> None:
        self._zookeeper = zookeeper
        self._membership = membership

    async def allocate(self) -> tuple[int, int]:
        """(first id, count) of a block that no other broker has or will get."""
        while True:
            znode = await self._zookeeper.get(paths.PRODUCER_ID_BLOCK)
            if znode is None:
                await self._zookeeper.ensure(paths.PRODUCER_ID_BLOCK)
                continue
            first = paths.decode_producer_id_block(znode.data)[1] + 1 if znode.data else 0
            data = paths.encode_producer_id_block(self._membership.broker_id, first, first + BLOCK_SIZE - 1)
            try:
                await self._zookeeper.set(paths.PRODUCER_ID_BLOCK, data, znode.version)
            except ZnodeVersionError:
                continue
            return first, BLOCK_SIZE
