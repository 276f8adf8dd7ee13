"""What a copy's log says of its end: the last batch, which is compared with the source's, and when it was written."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.broker.errors import KafkaError
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.wire.batches import HEADER_SIZE, BatchHeader, read_header


def last_batch(own_log: PartitionLog) -> BatchHeader | None:
    """Its header; None for an empty log or one that ends in a gap."""
    end = own_log.log_end_offset
    if end <= own_log.log_start_offset:
        return None
    found = own_log.read(end - 1, size_max=1, upper_offset=end)
    if found.file is None or found.size < HEADER_SIZE:
        return None
    header = read_header(found.file.read_at(HEADER_SIZE, found.position))
    return header if header.next_offset == end else None


def changed_ms(directory: str) -> int:
    """When a log was last written to."""
    try:
        return max(int(os.stat(path).st_mtime * 1000) for path in Path(directory).glob("*.log"))
    except (OSError, ValueError) as error:
        raise KafkaError(f"{directory} has no log file: {error}") from error
