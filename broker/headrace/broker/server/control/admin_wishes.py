"""What tools of old ask the controller by znodes under `/admin`: preferred leaders, and other replicas for partitions.

A watch only says that there is something to read: it is read when its turn comes. A wish that nobody understands is one for
no partition: it ends as every other, and others can follow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.broker.replication import events
from headrace.broker.server.mailbox import Work
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.reads import understood
from headrace.broker.zk.subscription import Subscription
from headrace.broker.zk.znodes import Znode


class AdminWishes:
    """`post(work)` has work done in its turn; `handle(event)` has the controller decide, if this broker is it."""

    def __init__(
        self,
        zookeeper: ZooKeeperClient,
        post: Callable[[Work], None],
        handle: Callable[[events.Event], Awaitable[object]],
    ) -> None:
        self._zookeeper = zookeeper
        self._post = post
        self._handle = handle

    def watch(self) -> list[Subscription]:
        """Hear of wishes from now on, and of those that are there already."""
        return [
            self._zookeeper.watch_data(paths.PREFERRED_ELECTION, self._poster(self._elect)),
            self._zookeeper.watch_data(paths.REASSIGNMENT, self._poster(self._reassign)),
        ]

    def _poster(self, work: Work) -> Callable[[Znode | None], None]:
        def changed(znode: Znode | None) -> None:
            if znode is not None:
                self._post(work)

        return changed

    async def _elect(self) -> None:
        znode = await self._zookeeper.get(paths.PREFERRED_ELECTION)
        if znode is not None:
            (partitions,) = understood([znode], paths.decode_preferred_election) or [frozenset()]
            await self._handle(events.PreferredLeadersRequested(partitions=partitions))

    async def _reassign(self) -> None:
        znode = await self._zookeeper.get(paths.REASSIGNMENT)
        if znode is not None:
            (targets,) = understood([znode], paths.decode_reassignment) or [{}]
            await self._handle(events.ReassignmentsWished(targets=targets))
