"""Apache Kafka's small text files: offset checkpoints, leader epochs, topic id, broker id.

Pure: text to values and back. A file that says anything else raises CheckpointError, and its reader decides what it can
do without it. Empty files are what Kafka makes before it first writes one: they hold nothing.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from uuid import UUID

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.properties import parse_properties
from headrace.broker.log.names import OFFSET_MAX
from headrace.broker.wire.partitions import PartitionKey

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
REPLICATION_OFFSET_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
ROTTEN_SEGMENTS_FILE = "rotten-segments"
META_PROPERTIES_FILE = "meta.properties"
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1


class CheckpointError(ValueError):
    """The bytes are not the file that their name promises."""


def _entries(data: bytes, fields: int) -> list[list[str]]:
    try:
        lines = data.decode().splitlines()
        if not lines:
            return []
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        raise CheckpointError("the version and the number of entries cannot be read") from None
    if version != 0:
        raise CheckpointError(f"version {version} is not known")
    entries = [line.split(" ") for line in lines[2:]]
    if count != len(entries) or any(len(entry) != fields for entry in entries):
        raise CheckpointError(f"it does not hold the {count} entries that it announces")
    return entries


def _number(text: str, most: int) -> int:
    number = int(text)
    if not 0 <= number <= most:
        raise ValueError(text)
    return number


def encode_offsets(offsets: Mapping[PartitionKey, int]) -> bytes:
    """An offset checkpoint: one `topic partition offset` a line."""
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def decode_offsets(data: bytes) -> dict[PartitionKey, int]:
    """The entries of an offset checkpoint, none beyond OFFSET_MAX, where logs can go on; raises CheckpointError."""
    try:
        return {
            (topic, _number(partition, _INT32_MAX)): min(_number(offset, _INT64_MAX), OFFSET_MAX)
            for topic, partition, offset in _entries(data, 3)
        }
    except CheckpointError:
        raise
    except ValueError:
        raise CheckpointError("a partition or an offset is no number of theirs") from None


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """A leader epoch checkpoint: one `epoch start-offset` a line."""
    lines = [f"{epoch} {start_offset}\n" for epoch, start_offset in epochs]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """(epoch, start offset) in growing order; raises CheckpointError."""
    try:
        epochs = [
            (_number(epoch, _INT32_MAX), _number(start_offset, _INT64_MAX))
            for epoch, start_offset in _entries(data, 2)
        ]
    except CheckpointError:
        raise
    except ValueError:
        raise CheckpointError("an epoch or an offset is no number of theirs") from None
    if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(epochs)):
        raise CheckpointError("the epochs do not grow")
    return epochs


def encode_base_offsets(offsets: Iterable[int]) -> bytes:
    """Segments by their base offsets, one a line."""
    lines = [f"{offset}\n" for offset in sorted(offsets)]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def decode_base_offsets(data: bytes) -> set[int]:
    """Those base offsets; raises CheckpointError."""
    try:
        return {_number(offset, _INT64_MAX) for (offset,) in _entries(data, 1)}
    except CheckpointError:
        raise
    except ValueError:
        raise CheckpointError("a base offset is no number of theirs") from None


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """`partition.metadata`: the topic's id in Kafka's URL-safe base64."""
    return f"version: 0\ntopic_id: {base64.urlsafe_b64encode(topic_id.bytes).rstrip(b'=').decode()}".encode()


def decode_partition_metadata(data: bytes) -> UUID:
    """The topic's id; raises CheckpointError."""
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines())
        return UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"].strip() + "=="))
    except (ValueError, KeyError):
        raise CheckpointError("it names no topic id") from None


def encode_meta_properties(broker_id: int, cluster_id: str) -> bytes:
    """`meta.properties` of a broker in ZooKeeper mode."""
    return f"#\ncluster.id={cluster_id}\nversion=0\nbroker.id={broker_id}\n".encode()


def decode_meta_properties(data: bytes) -> dict[str, str]:
    """All its keys, as Java reads any bytes; raises CheckpointError."""
    try:
        return parse_properties(data.decode("latin-1"))
    except ConfigurationError as error:
        raise CheckpointError(str(error)) from None


def encode_clean_shutdown() -> bytes:
    """`.kafka_cleanshutdown`; ZooKeeper mode knows no broker epoch to keep (KIP-966)."""
    return json.dumps({"version": "0", "broker_epoch": "-1"}, separators=(",", ":")).encode()
