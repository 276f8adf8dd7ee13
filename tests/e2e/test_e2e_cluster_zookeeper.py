"""The ZooKeeper client against a real server: compare-and-set, watches, and sessions that end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from zookeeper_process import ZooKeeperProcess

from headrace.broker.zk.client import SessionListener, ZooKeeperClient
from headrace.broker.zk.znodes import (
    Check,
    Create,
    NoZnodeError,
    Set,
    ZnodeExistsError,
    ZnodeVersionError,
    ZooKeeperError,
)

SESSION_TIMEOUT_MS = 2000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    yield process
    process.end()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    process = ZooKeeperProcess(tmp_path)
    yield process
    process.end()


def with_client(
    server: ZooKeeperProcess, script: Callable[[ZooKeeperClient], Awaitable[None]], chroot: str = ""
) -> None:
    async def run() -> None:
        client = ZooKeeperClient(
            server.address + chroot, session_timeout_ms=SESSION_TIMEOUT_MS, connection_timeout_ms=10_000
        )
        await client.connect()
        try:
            async with asyncio.timeout(60):
                await script(client)
        finally:
            await client.close()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for signals nothing
            await asyncio.sleep(0.01)


def test_what_was_created_is_read_and_parents_are_made(server: ZooKeeperProcess) -> None:
    async def script(client: ZooKeeperClient) -> None:
        assert await client.create("/made/deep/node", b"x") == "/made/deep/node"
        znode = await client.get("/made/deep/node")
        assert znode is not None
        assert (znode.data, znode.version, znode.ephemeral_owner) == (b"x", 0, 0)
        assert await client.children("/made") == ["deep"]
        assert await client.get("/nowhere") is None
        assert await client.children("/nowhere") == []
        with pytest.raises(ZnodeExistsError):
            await client.create("/made/deep/node")
        await client.ensure("/made/deep/node", b"other")
        assert await client.get_many(["/made/deep/node", "/nowhere"]) == [znode, None]

    with_client(server, script)


def test_an_answer_that_gets_lost_is_asked_for_again(
    server: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(client: ZooKeeperClient) -> None:
        lost: list[object] = []
        get = client._kazoo.get_async

        def lose_one(path: str, watch: object = None) -> object:
            result = get(path, watch)
            if not lost:
                lost.append(result)
                monkeypatch.setattr(result, "rawlink", lambda callback: None)
            return result

        monkeypatch.setattr(client._kazoo, "get_async", lose_one)
        await client.ensure("/lost", b"x")
        znode = await client.get("/lost")
        assert znode is not None
        assert znode.data == b"x"
        assert len(lost) == 1

    with_client(server, script)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failure_of_kazoos_own_thread_costs_a_session_and_no_more(
    server: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(client: ZooKeeperClient) -> None:
        first = client.session_id
        connection = client._kazoo._connection
        read = connection._read_response

        def fail_once(*arguments: object) -> object:
            monkeypatch.setattr(connection, "_read_response", read)
            raise RuntimeError("xids do not match")

        monkeypatch.setattr(connection, "_read_response", fail_once)
        await client.ensure("/after", b"x")
        assert await client.children("/after") == []
        assert client.session_id not in (0, first)

    with_client(server, script)


def test_a_write_on_an_old_version_is_refused_also_when_it_writes_the_same(server: ZooKeeperProcess) -> None:
    async def script(client: ZooKeeperClient) -> None:
        await client.create("/cas", b"0")
        assert await client.set("/cas", b"1", 0) == 1
        with pytest.raises(ZnodeVersionError):
            await client.set("/cas", b"1", 0)
        with pytest.raises(NoZnodeError):
            await client.set("/nowhere", b"1", 0)

    with_client(server, script)


def test_concurrent_compare_and_set_has_one_winner_a_round(server: ZooKeeperProcess) -> None:
    async def script(client: ZooKeeperClient) -> None:
        await client.create("/counter", b"0")

        async def add() -> None:
            while True:
                znode = await client.get("/counter")
                assert znode is not None
                try:
                    await client.set("/counter", str(int(znode.data) + 1).encode(), znode.version)
                except ZnodeVersionError:
                    continue
                return

        await asyncio.gather(*(add() for _ in range(20)))
        znode = await client.get("/counter")
        assert znode is not None
        assert (znode.data, znode.version) == (b"20", 20)

    with_client(server, script)


def test_a_transaction_does_all_or_nothing_and_names_the_cause(server: ZooKeeperProcess) -> None:
    async def script(client: ZooKeeperClient) -> None:
        await client.create("/epoch", b"5")
        with pytest.raises(ZnodeVersionError):
            await client.transaction([Create("/made-too-soon"), Check("/epoch", 7)])
        assert await client.get("/made-too-soon") is None
        await client.transaction([Check("/epoch", 0), Create("/made-once", b"x"), Set("/epoch", b"6", 0)])
        epoch = await client.get("/epoch")
        assert epoch is not None
        assert epoch[:2] == (b"6", 1)
        with pytest.raises(ZnodeExistsError):
            await client.transaction([Check("/epoch", 1), Create("/made-once")])

    with_client(server, script)


def test_a_tree_is_deleted_and_what_is_not_there_is_no_error(server: ZooKeeperProcess) -> None:
    async def script(client: ZooKeeperClient) -> None:
        for leaf in range(30):
            await client.create(f"/tree/branch/{leaf}")
        await client.delete_tree("/tree")
        assert await client.get("/tree") is None
        await client.delete_tree("/tree")
        await client.delete("/tree")

    with_client(server, script)


def test_subscriptions_tell_now_and_after_every_change(server: ZooKeeperProcess) -> None:
    async def script(client: ZooKeeperClient) -> None:
        children: list[list[str]] = []
        contents: list[bytes | None] = []
        client.watch_children("/watched", children.append)
        data = client.watch_data("/watched/a", lambda z: contents.append(None if z is None else z.data))
        await until(lambda: children == [[]] and contents == [None])
        await client.create("/watched/a", b"1")
        await until(lambda: children[-1] == ["a"] and contents[-1] == b"1")
        await client.set("/watched/a", b"2")
        await client.create("/watched/b")
        await until(lambda: children[-1] == ["a", "b"] and contents[-1] == b"2")
        await client.delete("/watched/a")
        await until(lambda: children[-1] == ["b"] and contents[-1] is None)
        data.cancel()
        seen = len(contents)
        await client.create("/watched/a", b"3")
        await until(lambda: children[-1] == ["a", "b"])
        assert len(contents) == seen

    with_client(server, script)


def test_a_chroot_is_created_and_stays_inside(server: ZooKeeperProcess) -> None:
    async def inside(client: ZooKeeperClient) -> None:
        await client.create("/node", b"inside")
        assert (await client.transaction([Create("/other")])) != []

    async def outside(client: ZooKeeperClient) -> None:
        assert await client.children("/chroot/of/kafka") == ["node", "other"]

    with_client(server, inside, chroot="/chroot/of/kafka")
    with_client(server, outside)


def test_no_server_is_an_error_with_a_sentence(own_server: ZooKeeperProcess) -> None:
    own_server.kill()

    async def run() -> None:
        client = ZooKeeperClient(own_server.address, session_timeout_ms=1000, connection_timeout_ms=500)
        with pytest.raises(ZooKeeperError, match=r"no ZooKeeper server .* correct zookeeper\.connect"):
            await client.connect()

    asyncio.run(run())


class Recorder(SessionListener):
    """Writes down what a session's owner hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def session_started(self) -> None:
        self.heard.append("started")

    def session_suspended(self) -> None:
        self.heard.append("suspended")

    def session_resumed(self) -> None:
        self.heard.append("resumed")


def test_requests_made_while_the_server_is_dead_are_answered_when_it_is_back(
    own_server: ZooKeeperProcess,
) -> None:
    async def script(client: ZooKeeperClient) -> None:
        recorder = Recorder()
        client.add_listener(recorder)
        children: list[list[str]] = []
        await client.create("/before", b"x")
        await client.create("/mine", ephemeral=True)
        client.watch_children("/watched", children.append)
        own_server.kill()
        await until(lambda: recorder.heard == ["suspended"])
        late = asyncio.gather(client.get("/before"), client.create("/watched/late"))
        await asyncio.sleep(0.2)
        assert not late.done()
        await asyncio.to_thread(own_server.start)
        znode, path = await late
        assert znode is not None
        assert (znode.data, path) == (b"x", "/watched/late")
        await until(lambda: children[-1:] == [["late"]])
        await until(lambda: recorder.heard == ["suspended", "resumed"])
        assert await client.get("/mine") is not None

    with_client(own_server, script)


def test_a_session_that_ended_is_followed_by_a_new_one_without_the_ephemeral_znodes(
    own_server: ZooKeeperProcess,
) -> None:
    async def script(client: ZooKeeperClient) -> None:
        recorder = Recorder()
        client.add_listener(recorder)
        children: list[list[str]] = []
        first_session = client.session_id
        await client.create("/mine", ephemeral=True)
        client.watch_children("/watched", children.append)
        expire(own_server, client)
        await until(lambda: "started" in recorder.heard)
        assert client.session_id != first_session
        assert await client.get("/mine") is None
        await client.create("/watched/after")
        await until(lambda: children[-1:] == [["after"]])

    with_client(own_server, script)


def expire(server: ZooKeeperProcess, client: ZooKeeperClient) -> None:
    """End the client's session behind its back: whoever takes a session over and closes it ends it."""
    from kazoo.client import KazooClient

    thief = KazooClient(server.address, client_id=client._kazoo.client_id)
    thief.start()
    thief.stop()
    thief.close()
