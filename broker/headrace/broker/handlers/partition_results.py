"""What was found for partitions, grouped by topic, as answers have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from headrace.broker.wire.partitions import PartitionKey

T = TypeVar("T")


def by_topic(results: Mapping[PartitionKey, T]) -> Iterable[tuple[str, list[tuple[int, T]]]]:
    """(topic, [(partition, what was found)]), in order."""
    topics: dict[str, list[tuple[int, T]]] = {}
    for (topic, partition), result in sorted(results.items(), key=lambda item: item[0]):
        topics.setdefault(topic, []).append((partition, result))
    return topics.items()
