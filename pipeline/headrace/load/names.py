"""What a table's own columns are called.

Owns these names, and the former one that tables of older releases still have. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

DATACENTER: Final = "_datacenter"
TOPIC: Final = "_topic"
TOPIC_PARTITION: Final = "_topic_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
OWN_COLUMNS: Final = (DATACENTER, TOPIC, TOPIC_PARTITION, OFFSET, TIMESTAMP)
FORMER_PARTITION: Final = "_partition"
"""What `_topic_partition` was called: a name that Iceberg reserves, so that Spark refused every table with it."""


def partition_column(names: Iterable[str]) -> str:
    """Return what the partition's column is called among a table's or a file's: older ones have the former name."""
    known = frozenset(names)
    return FORMER_PARTITION if FORMER_PARTITION in known and TOPIC_PARTITION not in known else TOPIC_PARTITION
