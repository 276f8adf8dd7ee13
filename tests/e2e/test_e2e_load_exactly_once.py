"""Whatever dies and whoever races, every source offset is in the warehouse exactly once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from load_driver import STEPS, load
from load_helpers import EVENT, EVENT_ID, account, create_topic, every_offset_once, publish, schemas_served
from long_runs import first_of
from processes import DevCluster

from headrace.load import tables
from headrace.load.storage import local_path

DRIVER = Path(__file__).with_name("load_driver.py")
PARTITIONS = 3
AFTER_THESE_IN_SHORT = ("append", "clean", "commit", "tell the group")
# The moment before a step is that after another one, but for what a step calls by itself.
KILLS = first_of(
    len(AFTER_THESE_IN_SHORT),
    [
        *((step, "after") for step in AFTER_THESE_IN_SHORT),
        *((step, "after") for step in sorted(STEPS.keys() - set(AFTER_THESE_IN_SHORT))),
        *((step, "before") for step in sorted(STEPS)),
    ],
)


@pytest.fixture
def registry() -> Iterator[str]:
    with schemas_served({EVENT_ID: EVENT}) as url:
        yield url


def start(
    broker: DevCluster, registry: str, warehouse: Path, topic: str, *kill: str
) -> subprocess.Popen[bytes]:
    arguments = [broker.bootstrap, registry, str(warehouse), topic, *kill]
    return subprocess.Popen([sys.executable, str(DRIVER), *arguments])


@pytest.mark.parametrize(("step", "when"), KILLS)
def test_a_driver_killed_around_any_step_loses_and_doubles_nothing(
    broker: DevCluster, registry: str, tmp_path: Path, step: str, when: str
) -> None:
    topic = f"dc-{step.replace(' ', '-')}-{when}.pageviews"
    create_topic(broker.bootstrap, topic, PARTITIONS)
    publish(broker.bootstrap, topic, PARTITIONS, 60, garbage_every=7)
    load(broker.bootstrap, registry, tables.open_catalog(str(tmp_path)), topic)
    publish(broker.bootstrap, topic, PARTITIONS, 60, garbage_every=7)
    assert start(broker, registry, tmp_path, topic, when, step).wait(120) == -signal.SIGKILL
    publish(broker.bootstrap, topic, PARTITIONS, 60, garbage_every=7)
    load(broker.bootstrap, registry, tables.open_catalog(str(tmp_path)), topic)
    assert account(tmp_path) == every_offset_once(PARTITIONS, 180)
    assert leftover_files(tmp_path) == []


def leftover_files(warehouse: Path) -> list[str]:
    """Return data files that no snapshot names."""
    catalog = tables.open_catalog(str(warehouse))
    named: set[str] = set()
    for name in ("pageviews", tables.DEAD_LETTER):
        plan = tables.load_table(catalog, name).scan().plan_files()
        named |= {str(local_path(item.file.file_path)) for item in plan}
    return [str(path) for path in warehouse.rglob("run-*/*.parquet") if str(path) not in named]


@pytest.mark.long
@pytest.mark.parametrize("rounds", [2, 8])
def test_two_drivers_on_the_same_ranges_load_them_once(
    broker: DevCluster, registry: str, tmp_path: Path, rounds: int
) -> None:
    topic = f"dc-race-{rounds}.pageviews"
    create_topic(broker.bootstrap, topic, PARTITIONS)
    total = 0
    for _ in range(rounds):
        publish(broker.bootstrap, topic, PARTITIONS, 300, garbage_every=50)
        total += 300
        drivers = [start(broker, registry, tmp_path, topic) for _ in range(2)]
        assert [driver.wait(120) for driver in drivers] == [0, 0]
    assert account(tmp_path) == every_offset_once(PARTITIONS, total)
