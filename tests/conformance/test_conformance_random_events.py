"""Random sessions with compaction, retention, moves, broker configurations and restarts: both brokers end up the same.

    HEADRACE_SEEDS=0-99 pytest tests/conformance/test_conformance_random_events.py

runs others than the fixed seeds; a failure tells the same as those of the plain sessions. Restarts have seeds of their own,
for Apache Kafka takes its time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pairs import running_pair
from random_event_runs import DIRECTORIES, SETTINGS, EventfulSession
from random_events import EventGenerator
from random_scripts import check_session, seeds
from sessions import Pair
from zookeeper_process import ZooKeeperProcess

# Shrinking takes five minutes at most.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def eventful_pair(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("eventful")
    with running_pair(kafka_jars, zookeeper, home, SETTINGS, DIRECTORIES) as both:
        yield both


@pytest.mark.parametrize("seed", seeds((1, 0, 2)))
def test_a_random_session_with_events(eventful_pair: Pair, seed: int) -> None:
    rules = partial(EventGenerator, now_ms=int(time.time() * 1000), restarts=False)
    check_session(eventful_pair, seed, rules, partial(EventfulSession, eventful_pair.znodes))


@pytest.mark.parametrize("seed", seeds([0]))
def test_a_random_session_with_restarts(eventful_pair: Pair, seed: int) -> None:
    rules = partial(EventGenerator, now_ms=int(time.time() * 1000), restarts=True)
    check_session(eventful_pair, seed, rules, partial(EventfulSession, eventful_pair.znodes))
