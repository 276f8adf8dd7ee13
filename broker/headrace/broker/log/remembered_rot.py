"""Segments in which recovery kept bad bytes, remembered in the log's folder: a start after a clean stop looks into those alone.

So the damage is told of until the segment or the folder is gone, or the bytes are right again. Apache Kafka passes over the
file. Must not know: what recovery does with bad bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

from headrace.broker.log import names
from headrace.broker.log.checking import SegmentAtRest, damages
from headrace.broker.log.checkpoints import (
    ROTTEN_SEGMENTS_FILE,
    CheckpointError,
    decode_base_offsets,
    encode_base_offsets,
)
from headrace.broker.log.files import Files
from headrace.broker.log.results import LogFinding, RecoveryReport
from headrace.broker.log.segment import Segment


def recall(
    files: Files,
    directory: str,
    segments: Sequence[Segment],
    walked: Collection[Segment],
    report: RecoveryReport,
) -> None:
    """Add the rot in remembered segments that were not `walked` to the report; remember those that have some now."""
    path = f"{directory}/{ROTTEN_SEGMENTS_FILE}"
    remembered = _remembered(files, path, report)
    for segment, following in zip_longest(segments, segments[1:]):
        if segment.base_offset in remembered and segment not in walked:
            report.findings += _rot(segment, following)
    rotten_paths = {finding.path for finding in report.findings if finding.kind == "rot"}
    rotten = {s.base_offset for s in segments if s.path(names.LOG_SUFFIX) in rotten_paths}
    if rotten and rotten != remembered:
        files.replace_file(path, encode_base_offsets(rotten))
    elif not rotten:
        files.remove(path)


def _remembered(files: Files, path: str, report: RecoveryReport) -> set[int]:
    if not files.exists(path):
        return set()
    try:
        return decode_base_offsets(files.read(path))
    except CheckpointError as error:
        report.findings.append(LogFinding("discarded", path, 0, files.size(path), str(error)))
        return set()


def _rot(segment: Segment, following: Segment | None) -> Iterator[LogFinding]:
    at_rest = SegmentAtRest(
        base_offset=segment.base_offset,
        size=segment.size,
        log=segment.log,
        following_offset=None if following is None else following.base_offset,
        synced_offset=segment.next_offset,
        next_offset=segment.base_offset,
    )
    path = segment.path(names.LOG_SUFFIX)
    for damage in damages(at_rest):
        yield LogFinding("rot", path, damage.position, damage.size, damage.reason)
