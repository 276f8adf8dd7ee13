"""Access control lists in ZooKeeper: read at the start, followed by notifications, changed by compare and set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest

from headrace.broker.auth.acl_authorizer import AclAuthorizer
from headrace.broker.auth.acls import (
    EVERY_BINDING,
    Binding,
    BindingFilter,
    Entry,
    EntryFilter,
    Pattern,
    PatternFilter,
    PatternType,
    Permission,
)
from headrace.broker.auth.decisions import Decisions
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import Principal
from headrace.broker.errors import ErrorCode
from headrace.broker.server.access import acl_store
from headrace.broker.server.access.acl_store import NOTIFICATION_LIFE_MS, WRITES_MAX, AclStore
from headrace.broker.zk import acls
from headrace.broker.zk.znodes import Znode, ZnodeVersionError

NOW_MS = 10 * NOTIFICATION_LIFE_MS
ALICE = Principal("User", "alice")
EVENTS = Pattern(ResourceType.TOPIC, "events")
PREFIX = Pattern(ResourceType.GROUP, "loads-", PatternType.PREFIXED)
READ = Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)
PATH = "/kafka-acl/Topic/events"


class Clock:
    def now_ms(self) -> int:
        return NOW_MS


class ZooKeeper:
    """Znodes in memory; `rivals` are writes of others that come just before ours."""

    def __init__(self) -> None:
        self.znodes: dict[str, Znode] = {}
        self.rivals: list[Callable[[], None]] = []
        self.created_count = 0
        self.watched: dict[str, Callable[[list[str]], None]] = {}

    def put(self, path: str, data: bytes, created_ms: int = NOW_MS) -> None:
        old = self.znodes.get(path)
        self.znodes[path] = Znode(data, 0 if old is None else old.version + 1, 1, 0, created_ms)

    async def ensure(self, path: str) -> None:
        if path not in self.znodes:
            self.put(path, b"")

    async def get(self, path: str) -> Znode | None:
        return self.znodes.get(path)

    async def get_many(self, names: Sequence[str]) -> list[Znode | None]:
        return [self.znodes.get(name) for name in names]

    async def children(self, path: str) -> list[str]:
        below = (p.removeprefix(path + "/") for p in self.znodes if p.startswith(path + "/"))
        return sorted({name.partition("/")[0] for name in below})

    def _rival(self) -> None:
        if self.rivals:
            self.rivals.pop()()

    async def set(self, path: str, data: bytes, version: int) -> None:
        self._rival()
        if self.znodes[path].version != version:
            raise ZnodeVersionError(path)
        self.put(path, data)

    async def create(self, path: str, data: bytes, *, sequence: bool = False) -> None:
        self.created_count += 1
        self.put(f"{path}{self.created_count:010}" if sequence else path, data)

    async def delete(self, path: str, version: int = -1) -> None:
        self._rival()
        if path in self.znodes and version not in (-1, self.znodes[path].version):
            raise ZnodeVersionError(path)
        self.znodes.pop(path, None)

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> None:
        self.watched[path] = callback

    def add_listener(self, listener: Any) -> None:
        pass


class World:
    """A store, and what it knows: `notice` has it hear of all changes that were notified."""

    def __init__(self) -> None:
        self.zookeeper = ZooKeeper()
        self.authorizer = AclAuthorizer(Decisions({}), allows_without_lists=True)
        self.store = AclStore(self.authorizer, cast("Any", self.zookeeper), cast("Any", Clock()))

    async def notice(self) -> None:
        for type_, folder in acls.CHANGES.items():
            await self.store._notified(type_, await self.zookeeper.children(folder))

    def may_read(self) -> bool:
        return self.authorizer.allows(ALICE, "h", Operation.READ, ResourceType.TOPIC, "events")


def run(script: Callable[[World], Awaitable[None]]) -> None:
    asyncio.run(cast("Any", script(World())))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_store, "RETRY_DELAY_S", 0)


def test_all_lists_are_read_and_unknown_kinds_passed_over() -> None:
    async def script(world: World) -> None:
        world.zookeeper.put(PATH, acls.encode_entries([READ]))
        world.zookeeper.put(acls.path_of(PREFIX), acls.encode_entries([READ]))
        world.zookeeper.put("/kafka-acl/Spaceship/one", acls.encode_entries([READ]))
        await world.store.load()
        assert world.store.matching(EVERY_BINDING) == [Binding(EVENTS, READ), Binding(PREFIX, READ)]
        assert set(acls.PERSISTENT_PATHS) <= world.zookeeper.znodes.keys()

    run(script)


@pytest.mark.parametrize("data", [b"{", b'{"version":9,"acls":[]}'])
def test_what_cannot_be_read_refuses_and_is_read_once_it_can(
    data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async def script(world: World) -> None:
        world.zookeeper.put(PATH, data)
        await world.store.load()
        assert not world.may_read()
        assert world.authorizer.allows(ALICE, "h", Operation.READ, ResourceType.TOPIC, "other")
        (refused,) = await world.store.create([Binding(EVENTS, READ)])
        assert refused is not None
        assert refused.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert world.zookeeper.znodes[PATH].data == data
        world.zookeeper.put(PATH, acls.encode_entries([READ]))
        world.zookeeper.put("/kafka-acl-changes/acl_changes_0000000007", b"Topic:events")
        await world.notice()
        assert world.may_read()

    run(script)


def test_entries_are_added_and_all_are_told() -> None:
    async def script(world: World) -> None:
        await world.store.load()
        assert await world.store.create([Binding(EVENTS, READ), Binding(PREFIX, READ)]) == [None, None]
        assert await world.store.create([Binding(EVENTS, WRITE), Binding(EVENTS, READ)]) == [None, None]
        assert acls.decode_entries(PATH, world.zookeeper.znodes[PATH].data) == {READ, WRITE}
        told = [z.data for path, z in world.zookeeper.znodes.items() if "changes/" in path]
        assert told == [b"TOPIC:events", acls.encode_change(PREFIX), b"TOPIC:events"]
        assert await world.store.create([Binding(EVENTS, READ)]) == [None]
        assert len([p for p in world.zookeeper.znodes if "changes/" in p]) == 3, "nothing changed"
        assert world.may_read()

    run(script)


def test_another_brokers_change_is_noticed_and_a_list_that_is_gone_forgotten() -> None:
    async def script(world: World) -> None:
        await world.store.load()
        world.zookeeper.put(PATH, acls.encode_entries([WRITE]))
        world.zookeeper.put("/kafka-acl-changes/acl_changes_0000000001", acls.encode_change(EVENTS))
        await world.notice()
        assert not world.may_read()
        await world.zookeeper.delete(PATH)
        world.zookeeper.put("/kafka-acl-changes/acl_changes_0000000002", acls.encode_change(EVENTS))
        world.zookeeper.put("/kafka-acl-changes/acl_changes_0000000003", b"nonsense")
        await world.notice()
        assert world.may_read(), "everybody may where no list is"
        await world.notice()

    run(script)


def test_after_a_lost_session_all_is_read_again() -> None:
    async def script(world: World) -> None:
        world.zookeeper.put(PATH, acls.encode_entries([WRITE]))
        await world.store.load()
        assert not world.may_read()
        await world.zookeeper.delete(PATH)
        await world.store._read_all()
        assert world.may_read()

    run(script)


def test_a_rivals_entries_are_kept() -> None:
    async def script(world: World) -> None:
        await world.store.load()
        await world.store.create([Binding(EVENTS, READ)])
        rival = acls.encode_entries([READ, WRITE])
        world.zookeeper.rivals = [partial(world.zookeeper.put, PATH, rival)]
        alter = READ._replace(operation=Operation.ALTER)
        assert await world.store.create([Binding(EVENTS, alter)]) == [None]
        assert acls.decode_entries(PATH, world.zookeeper.znodes[PATH].data) == {READ, WRITE, alter}
        world.zookeeper.rivals = [
            partial(world.zookeeper.put, PATH, acls.encode_entries([READ]))
        ] * WRITES_MAX
        (failure,) = await world.store.create([Binding(EVENTS, WRITE)])
        assert failure is not None
        assert "try again" in str(failure)

    run(script)


def test_each_filter_takes_what_it_is_the_first_to_match() -> None:
    everything = EntryFilter(None, None, Operation.ANY, Permission.ANY)
    to_read = everything._replace(operation=Operation.READ)

    async def script(world: World) -> None:
        await world.store.load()
        await world.store.create([Binding(p, e) for p in (EVENTS, PREFIX) for e in (READ, WRITE)])
        # Made by another broker, and not noticed here yet.
        late = Pattern(ResourceType.TOPIC, "late")
        world.zookeeper.put(acls.path_of(late), acls.encode_entries([WRITE]))
        deleted = await world.store.delete(
            [
                BindingFilter(PatternFilter(ResourceType.ANY, None, PatternType.ANY), to_read),
                BindingFilter(PatternFilter(ResourceType.TOPIC, "events", PatternType.LITERAL), everything),
                BindingFilter(PatternFilter(ResourceType.TOPIC, "late", PatternType.ANY), everything),
            ]
        )
        assert deleted == [
            [(Binding(EVENTS, READ), None), (Binding(PREFIX, READ), None)],
            [(Binding(EVENTS, WRITE), None)],
            [(Binding(late, WRITE), None)],
        ]
        assert PATH not in world.zookeeper.znodes
        assert world.store.matching(EVERY_BINDING) == [Binding(PREFIX, WRITE)]

    run(script)


def test_old_notifications_are_cleaned_away() -> None:
    async def script(world: World) -> None:
        await world.store.load()
        old, new = "/kafka-acl-changes/acl_changes_0000000001", "/kafka-acl-changes/acl_changes_0000000002"
        world.zookeeper.put(old, b"TOPIC:events", NOW_MS - NOTIFICATION_LIFE_MS - 1)
        world.zookeeper.put(new, b"TOPIC:events", NOW_MS - NOTIFICATION_LIFE_MS)
        await world.notice()
        assert old not in world.zookeeper.znodes
        assert new in world.zookeeper.znodes

    run(script)
