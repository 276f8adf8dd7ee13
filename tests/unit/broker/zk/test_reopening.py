"""A session that was given up is tried for each second, with the log-in that the file gives by then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kazoo.protocol.states import KeeperState
from virtual_time import VirtualLoop

from headrace.broker.zk.access import DIGEST_MODULE, ZooKeeperAccess
from headrace.broker.zk.reopening import Reopening


class Kazoo:
    """Gives up whenever it is started, until it knows the password."""

    def __init__(self) -> None:
        self.client_state = KeeperState.AUTH_FAILED
        self.password = ""
        self.started_at: list[float] = []

    def log_in_as(self, user: str, password: str) -> None:
        assert user == "kafka"
        self.password = password

    def start_async(self) -> None:
        self.started_at.append(asyncio.get_running_loop().time())
        if self.password == "right":
            self.client_state = KeeperState.CONNECTED
        elif len(self.started_at) == 2:
            raise RuntimeError("its thread is still ending")


def written(file: Path, password: str) -> None:
    file.write_text(f'Client {{ {DIGEST_MODULE} required username="kafka" password="{password}"; }};')


def access_of(file: Path) -> ZooKeeperAccess:
    written(file, "wrong")
    return ZooKeeperAccess.of({"headrace.zookeeper.jaas.file": str(file)}, {})


def run_here(loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would wait for threads is done at once."""

    def done(_: object, call: object) -> asyncio.Future[None]:
        assert callable(call)
        future = loop.create_future()
        future.set_result(call())
        return future

    monkeypatch.setattr(loop, "run_in_executor", done)


def test_a_given_up_session_is_tried_for_each_second_with_the_files_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kazoo, file = Kazoo(), tmp_path / "jaas"

    async def story() -> None:
        began = loop.time()
        reopening = Reopening(kazoo, access_of(file))
        reopening.lost(loop)
        reopening.lost(loop)
        reopening.refused()
        await asyncio.sleep(1.5)
        file.write_text("half of a fi")
        await asyncio.sleep(1)
        assert (reopening.is_refused, kazoo.password) == (True, "")
        written(file, "right")
        await asyncio.sleep(3)
        assert [at - began for at in kazoo.started_at] == [1, 2, 3]
        reopening.opened()
        assert not reopening.is_refused
        kazoo.client_state = KeeperState.CLOSED
        await asyncio.sleep(5)
        assert len(kazoo.started_at) == 3
        reopening.lost(loop)
        await reopening.end()
        await asyncio.sleep(5)
        assert len(kazoo.started_at) == 3

    with VirtualLoop() as loop:
        run_here(loop, monkeypatch)
        loop.run_until_complete(story())


def test_a_session_that_only_expired_is_left_to_kazoo(tmp_path: Path) -> None:
    kazoo = Kazoo()
    kazoo.client_state = KeeperState.CONNECTING

    async def story() -> None:
        Reopening(kazoo, access_of(tmp_path / "jaas")).lost(loop)
        await asyncio.sleep(5)
        assert kazoo.started_at == []

    with VirtualLoop() as loop:
        loop.run_until_complete(story())
