"""A mirror goes on while its source's ZooKeeper, or its own, is away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mirror_clusters import Cluster, copied
from zookeeper_process import ZooKeeperProcess

pytestmark = pytest.mark.long
AWAY_SECONDS = 100
"""Longer than configurations are believed, and a question for them may take."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Cluster, Cluster, ZooKeeperProcess, ZooKeeperProcess]]:
    """(dc-east with three brokers, offline with one, the ZooKeeper of each)."""
    there, here = ZooKeeperProcess(tmp_path / "there"), ZooKeeperProcess(tmp_path / "here")
    east = Cluster(tmp_path / "east", there, 3)
    east.create("events", 3)
    offline = Cluster(tmp_path / "offline", here, 1)
    offline.mirror({"dc-east": east})
    yield east, offline, there, here
    for cluster in (offline, east):
        cluster.end()
    for zookeeper in (there, here):
        zookeeper.end()


def log_of(cluster: Cluster) -> str:
    return (cluster.home / "broker-0" / "broker.log").read_text()


def publish_for(seconds: float, east: Cluster, offline: Cluster) -> None:
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        east.publish("events", 100)
        copied(east, offline, "events")
        time.sleep(5)


def test_a_mirror_goes_on_while_the_zookeeper_of_its_source_is_away(
    world: tuple[Cluster, Cluster, ZooKeeperProcess, ZooKeeperProcess],
) -> None:
    east, offline, there, _ = world
    east.publish("events", 100)
    copied(east, offline, "events")
    there.kill()
    publish_for(AWAY_SECONDS, east, offline)
    assert "source does not answer" not in log_of(offline)


def test_a_mirror_goes_on_while_its_own_zookeeper_is_away_and_starts_once_it_is_back(
    world: tuple[Cluster, Cluster, ZooKeeperProcess, ZooKeeperProcess],
) -> None:
    east, offline, _, here = world
    east.publish("events", 100)
    copied(east, offline, "events")
    here.kill()
    publish_for(AWAY_SECONDS, east, offline)
    assert "not in step" not in log_of(offline), "it lacks nothing"
    east.kill_and_start(2)
    publish_for(20, east, offline)
    assert "source does not answer" not in log_of(offline)
