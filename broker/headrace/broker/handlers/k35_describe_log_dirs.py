"""DescribeLogDirs (key 35), versions 0-4: the data directories, what they hold and the room they have (KIP-113, 827)."""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING, Any

from headrace.broker.auth.operations import Operation
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import require_cluster
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k35_describe_log_dirs

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog

API = k35_describe_log_dirs.API
VERSIONS = (0, 4)
NO_LAG = -1

Wanted = set[tuple[str, int]] | None


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    require_cluster(broker, call, Operation.DESCRIBE)
    wanted: Wanted = None
    if request["topics"] is not None:
        wanted = {(t["topic"], index) for t in request["topics"] for index in t["partitions"]}
    found = _by_directory(broker, wanted)
    directories = dict.fromkeys(os.path.abspath(directory) for directory in broker.config.log_dirs)
    offline = broker.partitions.logs.offline
    return {
        "error_code": 0,
        "results": [
            _failed(path) if path in offline else _describe(path, found.get(path, {})) for path in directories
        ],
    }


def _by_directory(broker: Services, wanted: Wanted) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Data directory → topic → its partitions there."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    logs = broker.partitions.logs
    for log, is_copy in chain(((log, False) for log in logs.all()), ((log, True) for log in logs.copies())):
        if wanted is None or (log.topic, log.partition) in wanted:
            partition = {
                "partition_index": log.partition,
                "partition_size": log.size,
                "offset_lag": _lag(broker, log, is_copy),
                "is_future_key": is_copy,
            }
            topics = found.setdefault(log.directory.rpartition("/")[0], {})
            topics.setdefault(log.topic, []).append(partition)
    return found


def _lag(broker: Services, log: PartitionLog, is_copy: bool) -> int:
    """How far a copy is behind its log, or the log behind what is committed."""
    if is_copy:
        source = broker.partitions.logs.get(log.topic, log.partition)
        return NO_LAG if source is None else source.log_end_offset - log.log_end_offset
    is_held = broker.partitions.get(log.topic, log.partition) is not None
    return max(log.high_watermark - log.log_end_offset, 0) if is_held else NO_LAG


def _failed(path: str) -> dict[str, Any]:
    return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": path, "topics": []}


def _describe(path: str, topics: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    try:
        space = os.statvfs(path)
    except OSError:
        return _failed(path)
    return {
        "error_code": 0,
        "log_dir": path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": space.f_blocks * space.f_frsize,
        "usable_bytes": space.f_bavail * space.f_frsize,
    }
