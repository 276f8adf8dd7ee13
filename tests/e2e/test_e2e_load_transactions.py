"""Loads and counters take what is committed: of transactions that were aborted no row comes, and a count of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_world import DATACENTER, AuditWorld, end_offset
from confluent_kafka import Producer
from load_driver import load
from load_helpers import EVENT, EVENT_ID, create_topic, event, framed, schemas_served
from processes import DevCluster, eventually
from zookeeper_process import ZooKeeperProcess

from headrace.load import tables

HEADRACE = str(Path(sys.executable).with_name("headrace"))
CLICKS = "pageviews.clicks"
RECORDS = 50


class Writer:
    """A producer whose transactions have so many records each, numbered from `first` on."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self._topic = topic
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
        self.producer.init_transactions(60)

    def write(self, first: int, count: int = RECORDS) -> list[int]:
        self.producer.begin_transaction()
        numbers = [*range(first, first + count)]
        for number in numbers:
            self.producer.produce(self._topic, framed(EVENT_ID, EVENT, event(number)), partition=0)
        assert self.producer.flush(60) == 0
        return numbers

    def commit(self) -> None:
        self.producer.commit_transaction(60)

    def abort(self) -> None:
        self.producer.abort_transaction(60)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schemas_served({EVENT_ID: EVENT}) as url:
        yield url


def transactions(bootstrap: str, topic: str) -> tuple[list[int], Writer]:
    """What is committed of two producers whose batches lie among each other, and the one whose last transaction is open."""
    first, second = (Writer(bootstrap, topic, f"{topic}-{name}") for name in ("first", "second"))
    committed = first.write(0)
    second.write(1000)
    first.commit()
    first.write(2000)
    second.abort()
    committed += second.write(3000)
    first.abort()
    second.commit()
    second.write(4000)
    committed += first.write(5000)
    first.commit()
    return committed, second


def rows(warehouse: Path) -> list[int]:
    table = tables.load_table(tables.open_catalog(str(warehouse)), "pageviews")
    found = table.scan(selected_fields=("header",)).to_arrow().column("header").to_pylist()
    return sorted(header["sequence"] for header in found)


def test_a_load_takes_what_is_committed_and_waits_for_what_is_open(
    broker: DevCluster, registry: str, tmp_path: Path
) -> None:
    topic = "dc-transactions.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    committed, opened = transactions(broker.bootstrap, topic)
    catalog = tables.open_catalog(str(tmp_path))
    load(broker.bootstrap, registry, catalog, topic)
    assert rows(tmp_path) == [number for number in committed if number < 5000]
    opened.abort()

    def has_all() -> bool:
        load(broker.bootstrap, registry, catalog, topic)
        return rows(tmp_path) == committed

    eventually(has_all, what="the rows behind the transaction that was open", every_s=0.3)


@pytest.mark.long
def test_the_command_loads_what_is_committed(broker: DevCluster, registry: str, tmp_path: Path) -> None:
    topic = "dc-command.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    committed, opened = transactions(broker.bootstrap, topic)
    opened.commit()
    where = ["--bootstrap", broker.bootstrap, "--registry", registry, "--warehouse", str(tmp_path)]
    subprocess.run([HEADRACE, "load", *where, "--topics", topic, "--once"], check=True, timeout=120)
    assert rows(tmp_path) == sorted([*committed, *range(4000, 4000 + RECORDS)])


@pytest.mark.long
def test_what_was_aborted_is_counted_in_a_column_of_its_own(
    tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    world = AuditWorld(tmp_path, zookeeper, mirror=True)
    try:
        create_topic(world.live.bootstrap, CLICKS, 1)
        committed, opened = transactions(world.live.bootstrap, CLICKS)
        opened.abort()
        end = end_offset(world.live.bootstrap, CLICKS, 0)
        copy = f"{DATACENTER}.{CLICKS}"
        eventually(lambda: end_offset(world.offline.bootstrap, copy, 0) == end, what="the copy")
        for tier in ("live", "offline"):
            world.count(tier, modes=f"{CLICKS}=headers")

        def row() -> dict[str, object]:
            found = world.report()["header_topics"]
            return found[0] if found and not found[0]["under_way"] else {}

        eventually(lambda: row().get("live") == len(committed), what="the counts")
        found = row()
        assert (found["offline"], found["aborted"]) == (len(committed), 3 * RECORDS)
        assert (found["lost"], found["duplicated"], found["control_batches"]) == (0, 0, 6)
    finally:
        world.end()
