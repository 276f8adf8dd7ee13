"""Names of files and folders in a data directory, as Apache Kafka forms and reads them."""

from __future__ import annotations

import re
from uuid import uuid4

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""A segment's files."""
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"
DELETE_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
OFFSET_MAX = 2**63 - 2**32
"""Where a segment may begin: all the offsets in it are numbers of the protocol."""
_DIRECTORY_NAME_LENGTH_MAX = 255
_UNIQUE_LENGTH = 32
# As topics and partitions are named; of anything else the checkpoints could not speak.
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_PARTITION_MAX = 2**31 - 1


def segment_file(base_offset: int, suffix: str) -> str:
    """`00000000000000000042.log`."""
    return f"{base_offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The base offset in a segment file's name; None for other files, and where no segment can begin."""
    digits = name.split(".", 1)[0]
    is_offset = len(digits) == 20 and digits.isascii() and digits.isdigit() and int(digits) <= OFFSET_MAX
    return int(digits) if is_offset else None


def partition_directory(topic: str, partition: int) -> str:
    """`pageviews-3`."""
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a folder's name; None when it holds no partition."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or int(match["partition"]) > _PARTITION_MAX:
        return None
    return match["topic"], int(match["partition"])


def deleted_directory(topic: str, partition: int) -> str:
    """`pageviews-3.<32 hex digits>-delete`, the topic cut so that the name fits a file system.

    A new name each time: what is deleted may come back, and be deleted again, before the first folder is gone.
    """
    suffix = f"-{partition}.{uuid4().hex}{DELETE_DIRECTORY_SUFFIX}"
    return topic[: _DIRECTORY_NAME_LENGTH_MAX - len(suffix)] + suffix


def future_directory(topic: str, partition: int) -> str:
    """`pageviews-3.<32 hex digits>-future`: the copy of a log that is on its way to another data directory (KIP-113)."""
    return f"{partition_directory(topic, partition)}.{uuid4().hex}{FUTURE_DIRECTORY_SUFFIX}"


def parse_future_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition) of such a copy's name; None for other names."""
    if not name.endswith(FUTURE_DIRECTORY_SUFFIX):
        return None
    prefix, _, unique = name.removesuffix(FUTURE_DIRECTORY_SUFFIX).rpartition(".")
    return parse_partition_directory(prefix) if len(unique) == _UNIQUE_LENGTH else None


def partition_of(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a folder that holds a log, or the copy of one."""
    return parse_partition_directory(name) or parse_future_directory(name)


def fits_future_directory(topic: str, partition: int) -> bool:
    """Whether a file system takes the name of such a copy (KAFKA-4893)."""
    return len(future_directory(topic, partition)) <= _DIRECTORY_NAME_LENGTH_MAX
