"""What `headrace check-logs --record` kept in the data directories: when it looked through them, and what is rotten."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from prometheus_client.core import GaugeMetricFamily, Metric

from headrace.broker.log import names
from headrace.broker.log.checkpoints import META_PROPERTIES_FILE
from headrace.broker.log.files import OsFiles
from headrace.broker.log.scrub_outcome import read_outcome
from headrace.broker.wire.partitions import PartitionKey


def scrub_families(directories: Iterable[str]) -> Iterator[Metric]:
    """Of a directory that nobody has looked through: since it was made."""
    since = GaugeMetricFamily(
        "headrace_scrub_seconds_since_last_run",
        "Since when a data directory has not been looked through for rotten bytes.",
        labels=["directory"],
    )
    rotten = GaugeMetricFamily(
        "headrace_scrub_rotten_places",
        "Stretches of bad bytes that the last look through a replica's log found, where there are any.",
        labels=["topic", "partition"],
    )
    places: Counter[PartitionKey] = Counter()
    for directory in directories:
        with suppress(OSError):
            outcome = read_outcome(OsFiles(), directory)
            begun_s = outcome.finished_s or os.stat(f"{directory}/{META_PROPERTIES_FILE}").st_mtime
            since.add_metric([directory], time.time() - begun_s)
            places.update(_places(directory, outcome.rotten_places))
    for (topic, partition), count in places.items():
        rotten.add_metric([topic, str(partition)], count)
    yield from (since, rotten)


def _places(directory: str, by_folder: Mapping[str, int]) -> dict[PartitionKey, int]:
    """By partition, of logs that are still there."""
    return {
        key: count
        for folder, count in by_folder.items()
        if (key := names.partition_of(folder)) is not None and os.path.isdir(f"{directory}/{folder}")
    }
