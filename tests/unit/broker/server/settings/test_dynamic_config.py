"""Topic configuration in memory: read at start, followed by notifications, changed by compare-and-set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from headrace.broker.quotas.entities import CLIENTS, IPS, USERS
from headrace.broker.server.mailbox import Mailbox
from headrace.broker.server.settings.dynamic_config import (
    BROKERS,
    NOTIFICATION_LIFE_MS,
    TOPICS,
    DynamicConfigs,
)
from headrace.broker.zk import paths
from headrace.broker.zk.znodes import Znode, ZnodeVersionError

NOW_MS = 10 * NOTIFICATION_LIFE_MS
Notified = Callable[[], Awaitable[None]]
Script = Callable[[DynamicConfigs, Notified], Awaitable[None]]


class Clock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return NOW_MS


class ZooKeeper:
    """Znodes in memory; `rivals` are writes of others that come just before ours."""

    def __init__(self) -> None:
        self.znodes: dict[str, Znode] = {}
        self.rivals: list[bytes] = []
        self.created_count = 0
        self.callback: Callable[[list[str]], None] | None = None

    def put(self, path: str, data: bytes, created_ms: int = NOW_MS) -> None:
        old = self.znodes.get(path)
        self.znodes[path] = Znode(data, 0 if old is None else old.version + 1, 1, 0, created_ms)

    async def get(self, path: str) -> Znode | None:
        return self.znodes.get(path)

    async def get_many(self, names: Sequence[str]) -> list[Znode | None]:
        return [self.znodes.get(name) for name in names]

    async def children(self, path: str) -> list[str]:
        below = (p.removeprefix(path + "/") for p in self.znodes if p.startswith(path + "/"))
        return sorted({name.partition("/")[0] for name in below})

    async def set(self, path: str, data: bytes, version: int) -> None:
        if self.rivals:
            self.put(path, self.rivals.pop())
        if self.znodes[path].version != version:
            raise ZnodeVersionError(path)
        self.put(path, data)

    async def create(self, path: str, data: bytes, *, sequence: bool = False) -> None:
        self.created_count += 1
        self.put(f"{path}{self.created_count:010}" if sequence else path, data)

    async def delete(self, path: str, version: int = -1) -> None:
        self.znodes.pop(path, None)

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> None:
        self.callback = callback


@pytest.fixture
def zookeeper() -> ZooKeeper:
    return ZooKeeper()


def with_configs(zookeeper: ZooKeeper, script: Script) -> None:
    async def failed(error: BaseException) -> None:
        raise error

    async def run() -> None:
        mailbox = Mailbox(failed)
        configs = DynamicConfigs(cast(Any, zookeeper), mailbox, Clock())
        configs.watch()

        async def notified() -> None:
            assert zookeeper.callback is not None
            zookeeper.callback(await zookeeper.children(paths.CONFIG_CHANGES))
            await mailbox.ask(nothing)

        async def nothing() -> None:
            return None

        running = asyncio.get_running_loop().create_task(mailbox.run())
        try:
            await script(configs, notified)
        finally:
            running.cancel()

    asyncio.run(run())


def config(**values: str) -> bytes:
    return paths.encode_config({name.replace("_", "."): value for name, value in values.items()})


def test_everything_is_read_at_start_and_unknown_topics_have_nothing(zookeeper: ZooKeeper) -> None:
    zookeeper.put("/config/topics/a", config(retention_ms="1"))

    async def script(configs: DynamicConfigs, notified: Notified) -> None:
        await configs.load("1")
        assert configs.of("a") == {"retention.ms": "1"}
        assert configs.of("b") == {}

    with_configs(zookeeper, script)


def test_a_notified_change_is_read_from_the_topic_and_told_once(zookeeper: ZooKeeper) -> None:
    async def script(configs: DynamicConfigs, notified: Notified) -> None:
        told = []
        configs.on_change(lambda topic, overrides: told.append((topic, dict(overrides))))
        zookeeper.put("/config/topics/a", config(retention_ms="2"))
        zookeeper.put("/config/changes/config_change_1", paths.encode_config_change("topics/a"))
        zookeeper.put("/config/changes/config_change_2", paths.encode_config_change("brokers/1"))
        await notified()
        await notified()
        assert told == [("a", {"retention.ms": "2"})]
        assert configs.of("a") == {"retention.ms": "2"}

    with_configs(zookeeper, script)


def test_a_topic_that_is_new_to_this_broker_is_read_and_does_not_inherit_a_namesakes(
    zookeeper: ZooKeeper,
) -> None:
    zookeeper.put("/config/topics/a", config(retention_ms="1"))
    zookeeper.put("/config/topics/b", config(retention_ms="1"))

    async def script(configs: DynamicConfigs, notified: Notified) -> None:
        await configs.load("1")
        zookeeper.put("/config/topics/a", config())
        zookeeper.put("/config/topics/b", config(retention_ms="2"))
        zookeeper.put("/config/topics/c", config(retention_ms="3"))
        await configs.learn({"a": True, "b": False, "c": False})
        assert [configs.of(topic) for topic in "abc"] == [{}, {"retention.ms": "1"}, {"retention.ms": "3"}]

    with_configs(zookeeper, script)


def test_old_notifications_are_removed_and_young_ones_kept(zookeeper: ZooKeeper) -> None:
    async def script(configs: DynamicConfigs, notified: Notified) -> None:
        note = paths.encode_config_change("topics/a")
        zookeeper.put("/config/changes/config_change_1", note, created_ms=NOW_MS - NOTIFICATION_LIFE_MS - 1)
        zookeeper.put("/config/changes/config_change_2", note, created_ms=NOW_MS - NOTIFICATION_LIFE_MS)
        await notified()
        assert await zookeeper.children(paths.CONFIG_CHANGES) == ["config_change_2"]

    with_configs(zookeeper, script)


def test_a_change_that_meets_a_rival_is_made_on_top_of_it_and_notified(zookeeper: ZooKeeper) -> None:
    async def script(configs: DynamicConfigs, notified: Notified) -> None:
        zookeeper.put("/config/topics/a", config(retention_ms="1"))
        zookeeper.rivals.append(config(segment_bytes="99"))
        await configs.alter(TOPICS, "a", lambda old: {**old, "flush.ms": "5"})
        assert zookeeper.znodes["/config/topics/a"].data == config(segment_bytes="99", flush_ms="5")
        assert len(await zookeeper.children(paths.CONFIG_CHANGES)) == 1

    with_configs(zookeeper, script)


def test_a_refused_change_writes_and_notifies_nothing(zookeeper: ZooKeeper) -> None:
    def refuse(old: dict[str, str]) -> dict[str, str]:
        raise ValueError("no")

    async def script(configs: DynamicConfigs, notified: Notified) -> None:
        zookeeper.put("/config/topics/a", config(retention_ms="1"))
        with pytest.raises(ValueError, match="no"):
            await configs.alter(TOPICS, "a", refuse)
        assert zookeeper.znodes["/config/topics/a"].version == 0
        assert await zookeeper.children(paths.CONFIG_CHANGES) == []

    with_configs(zookeeper, script)


def test_brokers_are_told_of_their_own_changes_and_of_all_brokers(zookeeper: ZooKeeper) -> None:
    zookeeper.put("/config/brokers/1", config(message_max_bytes="5"))

    async def script(configs: DynamicConfigs, notified: Notified) -> None:
        told = []
        configs.on_broker_change(
            lambda: told.append((configs.of_broker("1"), configs.of_broker("<default>")))
        )
        await configs.load("1")
        assert configs.of_broker("1") == {"message.max.bytes": "5"}
        await configs.alter(BROKERS, "<default>", lambda old: {**old, "max.connections": "7"})
        await configs.alter(BROKERS, "1", lambda old: {})
        await configs.alter(BROKERS, "2", lambda old: {"max.connections": "1"})
        await notified()
        last: tuple[dict[str, str], dict[str, str]] = ({}, {"max.connections": "7"})
        assert told == [({"message.max.bytes": "5"}, {"max.connections": "7"}), last]
        assert configs.of_broker("2") == {}

    with_configs(zookeeper, script)


def test_users_clients_and_addresses_are_told_of_at_the_start_and_after_each_change(
    zookeeper: ZooKeeper,
) -> None:
    zookeeper.put("/config/users/alice", config(producer_byte_rate="1"))
    zookeeper.put("/config/users/alice/clients/app", config(consumer_byte_rate="2"))
    zookeeper.put("/config/clients/<default>", config(request_percentage="3"))
    zookeeper.put("/config/ips/10.0.0.1", config(connection_creation_rate="4"))
    zookeeper.put("/config/users/broken", b"{")

    async def script(configs: DynamicConfigs, notified: Notified) -> None:
        told: dict[tuple[str, str], dict[str, str]] = {}
        configs.clients.on_change(lambda kind, name, found: told.update({(kind, name): dict(found)}))
        await configs.load("1")
        assert told == {
            (USERS, "alice"): {"producer.byte.rate": "1"},
            (USERS, "alice/clients/app"): {"consumer.byte.rate": "2"},
            (USERS, "broken"): {},
            (CLIENTS, "<default>"): {"request.percentage": "3"},
            (IPS, "10.0.0.1"): {"connection.creation.rate": "4"},
        }
        told.clear()
        await configs.alter(USERS, "alice/clients/app", lambda old: {**old, "x": "5"})
        await configs.alter(IPS, "10.0.0.1", lambda old: {})
        await notified()
        assert told == {
            (USERS, "alice/clients/app"): {"consumer.byte.rate": "2", "x": "5"},
            (IPS, "10.0.0.1"): {},
        }
        zookeeper.put("/config/users/alice", b"{")
        zookeeper.put("/config/changes/config_change_9", paths.encode_config_change("users/alice"))
        told.clear()
        await notified()
        assert told == {}, "what cannot be read leaves what was"

    with_configs(zookeeper, script)


def test_an_entity_with_nothing_configured_leaves_no_znode(zookeeper: ZooKeeper) -> None:
    zookeeper.put("/config/users/alice", config(producer_byte_rate="1"))
    zookeeper.put("/config/users/alice/clients/app", config(consumer_byte_rate="2"))
    zookeeper.put("/config/users/bob", b"")
    zookeeper.put("/config/users/bob/clients", b"")
    zookeeper.put("/config/users/bob/clients/app", config(consumer_byte_rate="2"))

    async def script(configs: DynamicConfigs, notified: Notified) -> None:
        await configs.alter(USERS, "alice", lambda old: {})
        assert zookeeper.znodes["/config/users/alice"].data == paths.encode_config({})
        await configs.alter(USERS, "alice/clients/app", lambda old: {})
        await configs.alter(USERS, "bob/clients/app", lambda old: {})
        await configs.alter(USERS, "nobody", lambda old: {})
        assert await zookeeper.children("/config/users") == []
        assert len(await zookeeper.children(paths.CONFIG_CHANGES)) == 4

    with_configs(zookeeper, script)
