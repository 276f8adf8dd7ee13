"""The registration of a broker while its ZooKeeper session ends, at whatever request."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headrace.broker.replication.model import Broker, Endpoint
from headrace.broker.server.membership import registration
from headrace.broker.server.membership.registration import Registration
from headrace.broker.zk.znodes import Znode, ZnodeExistsError, ZooKeeperError

PATH = "/brokers/ids/1"
FIRST, SECOND = 10, 11
REQUESTS = 5


class Clock:
    def now_ms(self) -> int:
        return 1000

    def monotonic_ms(self) -> int:
        return 1000


class ZooKeeper:
    """Another session begins before request `ends_at`, and takes the ephemeral znodes of the first one along."""

    def __init__(self, ends_at: int) -> None:
        self.session_id = FIRST
        self.znodes: dict[str, Znode] = {}
        self._zxid = 100
        self._left = ends_at

    def _request(self) -> None:
        if self._left == 0:
            self.session_id, self.znodes = SECOND, {}
        self._left -= 1

    async def children(self, path: str) -> list[str]:
        self._request()
        return [name.rpartition("/")[2] for name in self.znodes]

    async def get(self, path: str) -> Znode | None:
        self._request()
        return self.znodes.get(path)

    async def get_many(self, paths: list[str]) -> list[Znode | None]:
        return [self.znodes.get(path) for path in paths]

    async def create(self, path: str, data: bytes, *, ephemeral: bool) -> str:
        self._request()
        if path in self.znodes:
            raise ZnodeExistsError
        self._zxid += 1
        self.znodes[path] = Znode(data, 0, self._zxid, self.session_id, 0)
        return path

    async def delete(self, path: str, version: int) -> None:
        self.znodes.pop(path, None)


def registration_of(zookeeper: ZooKeeper, host: str) -> Registration:
    endpoint = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host=host, port=9092)
    broker = Broker(broker_id=1, epoch=-1, endpoints=(endpoint,), rack=None)
    return Registration(cast(Any, zookeeper), Clock(), broker)


@pytest.mark.parametrize("ends_at", range(REQUESTS))
def test_a_broker_is_registered_in_the_session_that_lives(
    ends_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PAUSE_SECONDS", 0)
    zookeeper = ZooKeeper(ends_at)
    own = registration_of(zookeeper, "h")
    asyncio.run(own.begin(10_000))
    znode = zookeeper.znodes[PATH]
    assert (znode.ephemeral_owner, znode.creation_zxid) == (zookeeper.session_id, own.epoch)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("h", "broker id 1 was still registered by its last session: it is taken off"),
        ("other", "broker id 1 is in use by another broker of this cluster"),
    ],
)
def test_a_last_session_is_told_from_another_broker(host: str, reason: str) -> None:
    zookeeper = ZooKeeper(ends_at=-1)
    asyncio.run(registration_of(zookeeper, host).begin(10_000))
    zookeeper.session_id = SECOND
    with pytest.raises(ZooKeeperError, match=reason):
        asyncio.run(registration_of(zookeeper, "h").begin(-1))
