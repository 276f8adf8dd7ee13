"""The dynamic configuration of all entities as `/config` holds it: in memory, kept true by `/config/changes`.

Invariants: `of(topic)` and `of_broker(name)` never wait; a change is read from the entity's znode, never from its
notification, so that reading one twice or late does no harm. Must not know what a configuration means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headrace.broker.clock import Clock
from headrace.broker.config.broker import is_secret
from headrace.broker.server.mailbox import Mailbox
from headrace.broker.server.settings.client_configs import KINDS, ClientConfigs, decoded
from headrace.broker.structured_log import get_logger
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.reads import understood
from headrace.broker.zk.znodes import NoZnodeError, ZnodeExistsError, ZnodeVersionError

logger = get_logger(__name__)
TOPICS, BROKERS = "topics", "brokers"
NOTIFICATION_LIFE_MS = 15 * 60 * 1000
Change = Callable[[dict[str, str]], Mapping[str, str]]


class DynamicConfigs:
    """The overrides of all topics, of this broker and of all brokers; callbacks run after a notified change."""

    def __init__(self, zookeeper: ZooKeeperClient, mailbox: Mailbox, clock: Clock) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._mailbox = mailbox
        self._overrides: dict[str, dict[str, str]] = {}
        self._brokers: dict[str, dict[str, str]] = {}
        self._seen: dict[str, int] = {}
        self._callbacks: list[Callable[[str, Mapping[str, str]], None]] = []
        self._broker_callbacks: list[Callable[[], None]] = []
        self.clients = ClientConfigs(zookeeper)

    def of(self, topic: str) -> dict[str, str]:
        """The topic's overrides; empty when it has none or is unknown."""
        return self._overrides.get(topic, {})

    def topics(self) -> Mapping[str, Mapping[str, str]]:
        """The overrides of all topics."""
        return self._overrides

    def of_broker(self, name: str) -> dict[str, str]:
        """The overrides of a broker that `load` was given, or of all brokers (`<default>`)."""
        return self._brokers.get(name, {})

    def on_change(self, callback: Callable[[str, Mapping[str, str]], None]) -> None:
        """Call `callback(topic, overrides)` after each change that was notified."""
        self._callbacks.append(callback)

    def on_broker_change(self, callback: Callable[[], None]) -> None:
        """Call `callback()` after each notified change of this broker's overrides or of all brokers'."""
        self._broker_callbacks.append(callback)

    async def load(self, broker: str) -> None:
        """Read the overrides of every topic, of the broker and of all brokers."""
        names = await self._zookeeper.children(f"{paths.CONFIG}/{TOPICS}")
        await self._read(names)
        for name in (broker, paths.DEFAULT_ENTITY):
            await self._read_broker(name)
        await self.clients.load()

    async def learn(self, topics: Mapping[str, bool]) -> None:
        """Read the overrides of those topics that are new to this broker (True): a namesake may have had others."""
        await self._read([t for t, is_new in topics.items() if is_new or t not in self._overrides])

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._overrides.pop(topic, None)

    def watch(self) -> None:
        """Follow `/config/changes` from now on; what was notified before the start was loaded."""
        self._zookeeper.watch_children(
            paths.CONFIG_CHANGES, lambda names: self._mailbox.post(lambda: self._notified(names))
        )

    async def alter(self, kind: str, name: str, change: Change) -> None:
        """Replace the overrides of an entity by `change(overrides)` and tell all brokers.

        Whatever `change` raises leaves them as they were; it may be called again when somebody else was faster.
        """
        path = paths.entity_config(kind, name)
        while True:
            znode = await self._zookeeper.get(path)
            overrides = decoded(path, znode) or {}
            changed = change(overrides)
            data = paths.encode_config(changed)
            try:
                if not changed and kind in KINDS:
                    version = None if znode is None else znode.version
                    if await self.clients.clean(kind, name, version):
                        break
                if znode is None:
                    await self._zookeeper.create(path, data)
                else:
                    await self._zookeeper.set(path, data, znode.version)
            except (NoZnodeError, ZnodeExistsError, ZnodeVersionError):
                continue
            break
        notification = paths.encode_config_change(f"{kind}/{name}")
        await self._zookeeper.create(paths.CONFIG_CHANGE_PREFIX, notification, sequence=True)

    async def _notified(self, names: list[str]) -> None:
        new = [name for name in names if name not in self._seen]
        self._seen = {name: created_ms for name, created_ms in self._seen.items() if name in names}
        znodes = await self._zookeeper.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in new])
        for name, znode in zip(new, znodes, strict=True):
            if znode is None:
                continue
            self._seen[name] = znode.created_ms
            entity = next(iter(understood([znode], paths.decode_config_change)), None)
            kind, _, entity_name = (entity or "").partition("/")
            if kind == TOPICS and entity_name and "/" not in entity_name:
                await self._topic_changed(entity_name)
            elif kind == BROKERS and entity_name in self._brokers:
                await self._broker_changed(entity_name)
            elif kind in KINDS and entity_name:
                await self.clients.changed(kind, entity_name)
        await self._purge()

    async def _topic_changed(self, topic: str) -> None:
        await self._read([topic])
        logger.info("topic configuration changed", topic=topic, overrides=self.of(topic))
        for callback in self._callbacks:
            callback(topic, self.of(topic))

    async def _broker_changed(self, name: str) -> None:
        await self._read_broker(name)
        overrides = {
            key: "[hidden]" if is_secret(key) else text for key, text in self.of_broker(name).items()
        }
        logger.info("broker configuration changed", broker=name, overrides=overrides)
        for callback in self._broker_callbacks:
            callback()

    async def _purge(self) -> None:
        """Every broker had the time to see what is this old."""
        oldest_ms = self._clock.now_ms() - NOTIFICATION_LIFE_MS
        for name in [name for name, created_ms in self._seen.items() if created_ms < oldest_ms]:
            await self._zookeeper.delete(f"{paths.CONFIG_CHANGES}/{name}")

    async def stored(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """The topics' overrides as ZooKeeper holds them now, perhaps ahead of the notification."""
        return {name: found or {} for name, found in (await self._found(topics)).items()}

    async def _found(self, topics: Iterable[str]) -> dict[str, dict[str, str] | None]:
        names = {name: paths.entity_config(TOPICS, name) for name in topics}
        znodes = await self._zookeeper.get_many(list(names.values()))
        return {name: decoded(path, znode) for (name, path), znode in zip(names.items(), znodes, strict=True)}

    async def _read(self, topics: Iterable[str]) -> None:
        for name, found in (await self._found(topics)).items():
            self._overrides[name] = self.of(name) if found is None else found

    async def _read_broker(self, name: str) -> None:
        path = paths.entity_config(BROKERS, name)
        found = decoded(path, await self._zookeeper.get(path))
        self._brokers[name] = self._brokers.get(name, {}) if found is None else found
