"""What each log needs from time to time: old segments and producers gone."""

from __future__ import annotations

from headrace.broker.errors import StorageError
from headrace.broker.log import names
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import LogFinding


def maintained(log: PartitionLog, now_ms: int, producer_id_expiration_ms: int) -> list[LogFinding]:
    """Do what is due; answers what was found and removed, a failure of the disk included."""
    try:
        return _maintain(log, now_ms, producer_id_expiration_ms)
    except StorageError as error:
        return [LogFinding("failed", log.directory, 0, 0, str(error))]


def _maintain(log: PartitionLog, now_ms: int, producer_id_expiration_ms: int) -> list[LogFinding]:
    findings: list[LogFinding] = []
    log.expire_producers(now_ms, producer_id_expiration_ms)
    for segment in log.delete_retired(now_ms):
        path = f"{log.directory}/{names.segment_file(segment.base_offset, names.LOG_SUFFIX)}"
        findings.append(LogFinding("retired", path, 0, segment.size, segment.reason))
    return findings + log.take_findings()
