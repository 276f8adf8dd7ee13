"""Which of the requests that came together are written together: see the package's text.

Must not know: what becomes of the batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.coordinators.topics import INTERNAL_TOPICS
from headrace.broker.handlers.access import Access
from headrace.broker.handlers.produce.check import FLAGS_AT, ZSTD_VERSION
from headrace.broker.handlers.produce.read import Head, client_id_of, head_of, split_single
from headrace.broker.handlers.services import Services
from headrace.broker.replication.partition import Partition
from headrace.broker.wire.batches import HEADER_SIZE, MAGIC, MAGIC_AT, TRANSACTIONAL_BIT
from headrace.broker.wire.frames import RequestHeader

# Both are about a millisecond's work.
REQUESTS_MAX, RUNS_MAX = 128, 64

# Half the time of a call of the class.
_new_tuple = tuple.__new__
_KEY_AND_VERSION = Struct(">i")


class Run(NamedTuple):
    """The batches for one partition, in order, and which of the gathered requests each is of."""

    topic: str
    partition: Partition
    appends: list[memoryview]
    numbers: list[int]


class Gathered(NamedTuple):
    """The requests in order, as (correlation id, head), and their batches by partition."""

    acks: int
    timeout_ms: int
    requests: list[tuple[int, Head]]
    runs: list[Run]


def gather(
    broker: Services,
    header: RequestHeader,
    frame: memoryview,
    more: Iterable[memoryview],
    count_min: int,
    rights: Access | None,
) -> Gathered | None:
    """`frame` and the first of `more`, as far as they can be written together; None when those are fewer than `count_min`.

    `rights`: of who sent them all.
    """
    version = header.version
    if version < ZSTD_VERSION:
        return None
    (key_and_version,) = _KEY_AND_VERSION.unpack_from(frame)
    client: bytes | None = None
    known: dict[bytes, tuple[Head, Run]] = {}
    runs: dict[Partition, Run] = {}
    requests: list[tuple[int, Head]] = []
    first = None
    for other in (frame, *islice(more, REQUESTS_MAX - 1)):
        try:
            split = split_single(version, other)
            if split is None or split[0] != key_and_version:
                break
            _, correlation_id, data, records = split
            if not _is_plain(records):
                break
            found = known.get(data)
            if found is None:
                client = client or client_id_of(data)
                head = head_of(version, data) if data.startswith(client) else None
                found = None if head is None else _run_of(broker, head, first, runs, rights)
                if found is None:
                    break
                known[data] = found
                first = first or found[0]
        except (StructError, IndexError, ValueError):
            break
        head, run = found
        run.appends.append(records)
        run.numbers.append(len(requests))
        requests.append((correlation_id, head))
    if first is None or len(requests) < count_min:
        return None
    return _new_tuple(Gathered, (first.acks, first.timeout_ms, requests, [*runs.values()]))


def _run_of(
    broker: Services,
    head: Head,
    first: Head | None,
    runs: dict[Partition, Run],
    rights: Access | None,
) -> tuple[Head, Run] | None:
    """The run to which a request with that head belongs; None when it has to be served alone."""
    if first is not None and head.acks != first.acks:
        return None
    if head.acks not in (-1, 0, 1) or head.topic in INTERNAL_TOPICS:
        return None
    if rights is not None:
        # A refusal is noted when the request is served alone.
        if not rights.may(Operation.WRITE, ResourceType.TOPIC, head.topic, quietly=True):
            return None
        rights.may(Operation.WRITE, ResourceType.TOPIC, head.topic)
    partition = broker.partitions.get(head.topic, head.partition_index)
    # What has to be unpacked takes its time.
    if partition is None or not partition.is_leader or partition.log.opens_batches:
        return None
    may_wait = head.acks == -1 or partition.log.awaits_sync
    if may_wait and first is not None and head.timeout_ms != first.timeout_ms:
        return None
    run = runs.get(partition)
    if run is None:
        if len(runs) == RUNS_MAX:
            return None
        run = runs[partition] = _new_tuple(Run, (head.topic, partition, [], []))
    return head, run


def _is_plain(records: memoryview) -> bool:
    return (
        len(records) >= HEADER_SIZE
        and records[MAGIC_AT] == MAGIC
        and not records[FLAGS_AT] & TRANSACTIONAL_BIT
    )
