"""What the log and the metrics say of ZooKeeper: at once, at intervals that grow, and when it is over."""

from __future__ import annotations

import asyncio
import logging

import pytest
from virtual_time import LoopClock, VirtualLoop

from headrace.broker.server.membership.zookeeper_watch import STILL_AWAY, ZooKeeperWatch
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.server.status.metrics_page import lines

AWAY = "ZooKeeper does not answer, clients are served from memory"


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, float]]:
    """Each event with the seconds that it names."""
    found = [(r.message, getattr(r, "facts", {}).get("seconds", 0)) for r in caplog.records]
    caplog.clear()
    return found


def test_an_outage_is_told_at_intervals_with_its_length(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace")
    with VirtualLoop() as loop:
        watch = ZooKeeperWatch(LoopClock(loop), "zk:2181")
        watch.connecting(loop)
        loop.run_until_complete(asyncio.sleep(10))
        unable = "ZooKeeper does not answer, this broker cannot start without it"
        assert told(caplog) == [("connecting to ZooKeeper", 0), (unable, 3), (unable, 9)]
        watch.session_started()
        loop.run_until_complete(asyncio.sleep(1000))
        assert told(caplog) == [("ZooKeeper answers", 10)]

        watch.session_suspended()
        watch.session_suspended()
        loop.run_until_complete(asyncio.sleep(250))
        assert told(caplog) == [(AWAY, 0), *((STILL_AWAY, s) for s in (3, 9, 21, 45, 93, 153, 213))]
        assert watch.away_s == 250
        watch.session_resumed()
        loop.run_until_complete(asyncio.sleep(1000))
        assert told(caplog) == [("ZooKeeper answers again", 250)]
        assert watch.away_s == 0


def test_a_zookeeper_that_is_not_this_clusters_is_told_until_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace")
    with VirtualLoop() as loop:
        watch = ZooKeeperWatch(LoopClock(loop), "zk:2181")
        watch.connecting(loop)
        watch.session_started()
        watch.registered()
        watch.session_started()
        caplog.clear()
        for _ in range(20):
            watch.foreign("ZooKeeper holds no cluster.id")
            loop.run_until_complete(asyncio.sleep(0.5))
        assert told(caplog) == [("ZooKeeper holds no cluster.id", s) for s in (0, 3, 9)]
        assert not watch.is_registered
        watch.registered()
        loop.run_until_complete(asyncio.sleep(1000))
        assert told(caplog) == [("ZooKeeper is this cluster's again", 10)]
        assert watch.is_registered


def test_the_page_shows_the_session() -> None:
    with VirtualLoop() as loop:
        watch = ZooKeeperWatch(LoopClock(loop), "zk:2181")
        metrics = BrokerMetrics()
        metrics.zookeeper = watch
        watch.connecting(loop)
        watch.session_started()
        watch.registered()
        watch.session_suspended()
        loop.run_until_complete(asyncio.sleep(2))
        page = "".join(lines(metrics.collect()))
        watch.close()
    assert "headrace_zookeeper_connected 0.0\n" in page
    assert "headrace_zookeeper_registered 1.0\n" in page
    assert "headrace_zookeeper_away_seconds 2.0\n" in page
    assert "headrace_zookeeper_sessions_total 1.0\n" in page
