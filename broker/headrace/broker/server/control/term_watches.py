"""What ZooKeeper tells a controller in its term: of brokers, topics, deletions, and what brokers notify it of.

Invariant: a watch only says that something is to be read, and it is read when its turn comes, so that no event is older than
what was done before it. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from headrace.broker.replication import events
from headrace.broker.replication.controller.state import ClusterState
from headrace.broker.replication.model import TopicAssignment
from headrace.broker.server.control.admin_wishes import AdminWishes
from headrace.broker.server.control.term import Term
from headrace.broker.server.mailbox import Work
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.reads import read_brokers, read_states, read_topics, understood
from headrace.broker.zk.subscription import Subscription
from headrace.broker.zk.znodes import Znode


class TermWatches:
    """`post(work)` has work done in its turn, `handle(event)` has the controller decide, `learn` reads topics' configurations."""

    def __init__(
        self,
        zookeeper: ZooKeeperClient,
        term: Term,
        post: Callable[[Work], None],
        handle: Callable[[events.Event], Awaitable[object]],
        learn: Callable[[Mapping[str, bool]], Awaitable[None]],
    ) -> None:
        self._zookeeper = zookeeper
        self._term = term
        self._post = post
        self._handle = handle
        self._learn = learn
        self._wishes = AdminWishes(zookeeper, post, handle)
        # What the controller knows; None once the term is over.
        self._cluster: ClusterState | None = None
        self._subscriptions: list[Subscription] = []
        self._topic_subscriptions: dict[str, Subscription] = {}
        self._changed_topics: set[str] = set()

    async def read_topics(self, names: Sequence[str]) -> dict[str, TopicAssignment]:
        """Those of these topics that there are, each with an id."""
        return await self._term.identify(await read_topics(self._zookeeper, names))

    def begin(self, cluster: ClusterState) -> None:
        """Hear of what changes from now on; `cluster` is what the controller knows."""
        self._cluster = cluster
        for topic in cluster.topics:
            self._watch_topic(topic)
        self._subscriptions = [
            self._zookeeper.watch_children(path, self._poster(work))
            for path, work in (
                (paths.BROKER_IDS, self._brokers_listed),
                (paths.TOPICS, self._topics_listed),
                (paths.DELETE_TOPICS, self._deletions_listed),
                (paths.ISR_CHANGES, self._isr_changes_listed),
                (paths.LOG_DIRECTORY_EVENTS, self._log_directory_events_listed),
            )
        ]
        self._subscriptions += self._wishes.watch()

    def end(self) -> None:
        """The term is over: what was not read yet is never."""
        self._cluster = None
        for subscription in (*self._subscriptions, *self._topic_subscriptions.values()):
            subscription.cancel()

    def topics_written(self, topics: Iterable[str]) -> None:
        """Read these topics in their turn, whether the watches have said so or not."""
        for topic in topics:
            self._topic_changed(topic)

    def topics_doomed(self) -> None:
        """Read which topics are to go, in its turn."""
        self._post(self._deletions_listed)

    def forget_topic(self, topic: str) -> None:
        """Hear of this one no longer."""
        subscription = self._topic_subscriptions.pop(topic, None)
        if subscription is not None:
            subscription.cancel()

    def _poster(self, work: Work) -> Callable[[list[str]], None]:
        return lambda names: self._post(work)

    async def _brokers_listed(self) -> None:
        if self._cluster is not None:
            names = await self._zookeeper.children(paths.BROKER_IDS)
            await self._handle(events.BrokersChanged(brokers=await read_brokers(self._zookeeper, names)))

    async def _topics_listed(self) -> None:
        if self._cluster is None:
            return
        names = await self._zookeeper.children(paths.TOPICS)
        removed = frozenset((self._cluster.topics.keys() | self._topic_subscriptions.keys()) - set(names))
        for topic in removed:
            self.forget_topic(topic)
        await self._handle(events.TopicsChanged(topics={}, removed=removed))
        for topic in names:
            if topic not in self._topic_subscriptions:
                self._watch_topic(topic)

    def _watch_topic(self, topic: str) -> None:
        def changed(znode: Znode | None) -> None:
            if znode is not None:
                self._topic_changed(topic)

        self._topic_subscriptions[topic] = self._zookeeper.watch_data(paths.topic(topic), changed)

    def _topic_changed(self, topic: str) -> None:
        """Read it in its turn, with the others that wait for theirs."""
        if not self._changed_topics:
            self._post(self._read_changed_topics)
        self._changed_topics.add(topic)

    async def _read_changed_topics(self) -> None:
        names, self._changed_topics = sorted(self._changed_topics), set()
        if self._cluster is None:
            return
        topics = await self.read_topics(names)
        known = self._cluster.topics
        changed = {name: topic for name, topic in topics.items() if known.get(name) != topic}
        if changed:
            await self._learn({name: name not in known for name in changed})
            await self._handle(events.TopicsChanged(topics=changed))

    async def _deletions_listed(self) -> None:
        if self._cluster is not None:
            names = await self._zookeeper.children(paths.DELETE_TOPICS)
            await self._handle(events.DeletionsRequested(topics=frozenset(names)))

    async def _isr_changes_listed(self) -> None:
        znodes = await self._notifications(paths.ISR_CHANGES)
        keys = {key for change in understood(znodes.values(), paths.decode_isr_change) for key in change}
        if keys:
            states = await read_states(self._zookeeper, sorted(keys))
            await self._handle(events.IsrChanged(states={k: s for k, s in states.items() if s is not None}))
        await self._delete_all(znodes)

    async def _log_directory_events_listed(self) -> None:
        znodes = await self._notifications(paths.LOG_DIRECTORY_EVENTS)
        brokers = frozenset(understood(znodes.values(), paths.decode_log_directory_event))
        if brokers:
            await self._handle(events.LogDirectoriesFailed(brokers=brokers))
        await self._delete_all(znodes)

    async def _notifications(self, parent: str) -> dict[str, Znode]:
        """The children by path; none when the term is over."""
        names = await self._zookeeper.children(parent) if self._cluster is not None else []
        found = [f"{parent}/{name}" for name in names]
        znodes = await self._zookeeper.get_many(found)
        return {path: znode for path, znode in zip(found, znodes, strict=True) if znode is not None}

    async def _delete_all(self, znodes: Iterable[str]) -> None:
        for path in znodes:
            await self._term.delete(path)
