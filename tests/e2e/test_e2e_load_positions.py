"""A load goes on only in the log that it has read: a log that was cut, made anew or emptied stops its partition alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from load_helpers import EVENT, EVENT_ID, account, create_topic, every_offset_once, publish, schemas_served
from processes import DevCluster

from headrace.broker.wire.batches import iter_batches
from headrace.load import tables, task
from headrace.load.driver import LoadConfig, Loader, RoundReport


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schemas_served({EVENT_ID: EVENT}) as url:
        yield url


def loader(broker: DevCluster, registry: str, warehouse: Path, topic: str) -> Loader:
    config = LoadConfig(
        bootstrap=broker.bootstrap, registry=registry, task_count_max=2, wanted=lambda name: name == topic
    )
    return Loader(tables.open_catalog(str(warehouse)), config, lambda work: [task.run(item) for item in work])


def load(broker: DevCluster, registry: str, warehouse: Path, topic: str) -> RoundReport:
    """Load until nothing moves; returns the last round's report."""
    running = loader(broker, registry, warehouse, topic)
    while (report := running.round()).moved:
        pass
    running.close()
    assert report.failures == []
    return report


def segment(broker: DevCluster, topic: str, partition: int) -> Path:
    return broker.data / "broker-1" / "logs" / f"{topic}-{partition}" / f"{0:020}.log"


def cut(broker: DevCluster, topic: str, partition: int, end: int) -> None:
    """Do to a stopped broker's log what a power cut does: its end, from about this offset on, was never written."""
    path = segment(broker, topic, partition)
    kept = max(
        position + header.size
        for position, header in iter_batches(path.read_bytes())
        if header.base_offset < end
    )
    with path.open("r+b") as file:
        file.truncate(kept)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (broker.data / "broker-1" / "logs" / name).unlink(missing_ok=True)


def test_a_log_that_lost_its_end_and_grew_past_the_position_is_not_loaded_on(
    broker: DevCluster, registry: str, tmp_path: Path
) -> None:
    topic = "dc-cut.pageviews"
    create_topic(broker.bootstrap, topic, 2)
    for _ in range(10):
        publish(broker.bootstrap, topic, 2, 20)
    assert load(broker, registry, tmp_path, topic).findings == []
    assert broker.stop() == 0
    cut(broker, topic, 0, 40)
    broker.start()
    publish(broker.bootstrap, topic, 2, 200)

    report = load(broker, registry, tmp_path, topic)
    (finding,) = report.findings
    assert (finding.kind, finding.partition, finding.offset) == ("truncation", 0, 100)
    expected = every_offset_once(2, 200)
    expected.update((1, offset) for offset in range(100, 200))
    assert account(tmp_path) == expected
