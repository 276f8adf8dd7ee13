"""Names of files and folders in a data directory, as Apache Kafka forms and reads them."""

from __future__ import annotations

from uuid import UUID, uuid4

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"
DELETE_DIRECTORY_SUFFIX = "-delete"
_DIRECTORY_NAME_LENGTH_MAX = 255


def segment_file(base_offset: int, suffix: str) -> str:
    """`00000000000000000042.log`."""
    return f"{base_offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The base offset in a segment file's name; None for other files."""
    digits = name.split(".", 1)[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


def partition_directory(topic: str, partition: int) -> str:
    """`pageviews-3`."""
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a folder's name; None when it holds no partition."""
    topic, dash, digits = name.rpartition("-")
    if not dash or not topic or not digits.isascii() or not digits.isdigit():
        return None
    return topic, int(digits)


def deleted_directory(topic: str, partition: int, unique: UUID | None = None) -> str:
    """`pageviews-3.<32 hex digits>-delete`, the topic cut so that the name fits a file system."""
    suffix = f"-{partition}.{(unique or uuid4()).hex}{DELETE_DIRECTORY_SUFFIX}"
    return topic[: _DIRECTORY_NAME_LENGTH_MAX - len(suffix)] + suffix
