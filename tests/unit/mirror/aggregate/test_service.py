"""How a member takes part: what it says while it waits for ZooKeeper."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.outage import REPEAT_MS
from headrace.broker.zk.znodes import ZooKeeperError
from headrace.mirror.aggregate import service


def test_that_zookeeper_is_away_is_told_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimpleNamespace(now=0)
    clock.monotonic_ms = lambda: clock.now
    cluster: Any = SimpleNamespace(clock=clock)

    connected: Any = object()

    async def connect(_: object) -> Any:
        clock.now += 5000
        if clock.now <= 2 * REPEAT_MS:
            raise ZooKeeperError("it is away")
        return connected

    monkeypatch.setattr(service, "connect", connect)
    monkeypatch.setattr(service, "PAUSE_SECONDS", 0)
    assert asyncio.run(service._connected(cluster)) is connected
    assert len([r for r in caplog.records if "aggregates wait for ZooKeeper" in r.getMessage()]) == 2
