"""Producer ids for idempotent producers, from blocks of `/latest_producer_id_block` that this broker alone
owns.

Invariants: no id is given twice, in this broker or another, also after a crash (what is left of a block is
lost); one block is being fetched at a time, the next one before the present one is used up; nobody waits for one: as
with Apache Kafka, a client that comes while there is none is told to come again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from zlib import crc32

from headrace.broker.errors import UnknownServerError
from headrace.broker.server.membership.member import Membership
from headrace.broker.structured_log import get_logger
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.znodes import ZnodeVersionError

PREFETCH_SHARE = 0.9
BLOCK_SIZE = 1000
LAST_PRODUCER_ID = 2**63 - 1
CLUSTERS_COUNT, IDS_OF_A_CLUSTER = 2**20, 2**32
"""Together below 2**53, up to which programs that keep numbers as doubles tell ids apart."""

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


def begin_of_ids(cluster_id: str) -> int:
    """Where a cluster's ids begin: each at another place, and none where Apache Kafka's do, at 0.

    A copy of another cluster's log knows that cluster's producers. Once it is promoted, a producer of this cluster with the
    same id would be taken for one of them, and its first batch for one that is there.
    """
    return (crc32(cluster_id.encode()) % CLUSTERS_COUNT + 1) * IDS_OF_A_CLUSTER


async def next_block(zookeeper: ZooKeeperClient, newest: bytes, broker_id: int) -> tuple[int, bytes]:
    """The first id of the block after the newest one, and what the znode is to hold when that broker takes it.

    Raises MalformedZnodeError, and UnknownServerError when there are no ids left.
    """
    if newest:
        first = paths.decode_producer_id_block(newest)[1] + 1
    else:
        cluster = await zookeeper.get(paths.CLUSTER_ID)
        first = begin_of_ids("" if cluster is None else paths.decode_cluster_id(cluster.data))
    last = first + BLOCK_SIZE - 1
    if last > LAST_PRODUCER_ID:
        raise UnknownServerError("all producer ids were given out")
    return first, paths.encode_producer_id_block(broker_id, first, last)


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
            first, data = await next_block(self._zookeeper, znode.data, self._membership.broker_id)
            try:
                await self._zookeeper.set(paths.PRODUCER_ID_BLOCK, data, znode.version)
            except ZnodeVersionError:
                continue
            return first, BLOCK_SIZE
