"""What a partition is called where no more is said of it: a topic's name and a number."""

from __future__ import annotations

from typing import NamedTuple

PartitionKey = tuple[str, int]
"""(topic, partition), the key of a dictionary."""


class TopicPartition(NamedTuple):
    """The same with names for its parts."""

    topic: str
    partition: int
