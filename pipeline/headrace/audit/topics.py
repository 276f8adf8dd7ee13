"""The ledger's inputs among the topics of the offline cluster: counts, accounts, arrivals, findings and acceptances.

Owns which topics these are and how far each was read. Invariant: what cannot be read is a problem in the ledger, never
skipped in silence.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from typing import Any, Final

from fastavro import schemaless_reader

from headrace.audit import acceptances
from headrace.audit.acceptances import ACCEPTANCES_TOPIC
from headrace.audit.clocks import NOBODY
from headrace.audit.ledger.accounts import CLOCK_SKEW_MS
from headrace.audit.ledger.ledger import ForeignLedgerError, Ledger
from headrace.audit.period import BEGIN_MS, Period
from headrace.audit.records import (
    ARRIVALS_TOPIC,
    COUNTS_TOPIC,
    FINDINGS_TOPIC,
    Barrier,
    CountRecord,
    decode,
    decode_arrival,
    decode_finding,
)
from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.errors import KafkaError
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.avro_schemas import MONITORING_TOPIC, parsed_schema
from headrace.events.envelope import unframe
from headrace.events.monitoring import MonitoringEvent
from headrace.load.columns import RecordColumns
from headrace.load.log_client import LogClient
from headrace.load.ranges import LogOffsets, OffsetRange
from headrace.load.source import StandstillError, chunks
from headrace.load.tables import split_topic

OWN_TOPICS: Final = (COUNTS_TOPIC, ARRIVALS_TOPIC, FINDINGS_TOPIC, ACCEPTANCES_TOPIC)
MIRRORED_TOPICS: Final = (COUNTS_TOPIC, MONITORING_TOPIC)
PROCESS_SIZE_MIN: Final = 3
"""Bytes of a process in an account of which nothing is known: an empty text and two zeros."""


class OfflineTopics:
    """Reads count records, accounts, arrivals and findings; `wanted`: of which topics of the cluster, of all unless told."""

    def __init__(self, client: LogClient, wanted: Container[str] | None = None) -> None:
        self._client = client
        self._wanted = wanted
        self._ends: dict[TopicPartition, int] = {}
        """Of those whose leaders answered last time."""

    def read_into(self, ledger: Ledger) -> int:
        """Read what is new; returns how many records.

        Raises:
            ForeignLedgerError
            ConnectionFailedError: no broker answers at all.
        """
        partitions = self._client.partitions(is_input)
        offsets = self._client.reachable_log_offsets(partitions)
        ledger.unread = {partition for partition in partitions if partition not in offsets}
        self._ends = {partition: ends.end for partition, ends in offsets.items()}
        return sum(
            self._read_partition(ledger, partition, ends) for partition, ends in sorted(offsets.items())
        )

    @property
    def reached(self) -> int:
        """Partitions whose leaders answered last time."""
        return len(self._ends)

    def lag(self, ledger: Ledger) -> dict[str, int]:
        """Return, by topic, how many offsets of those that the last reading could reach it has not read."""
        found: dict[str, int] = {}
        for partition, end in self._ends.items():
            left = max(0, end - ledger.read.get(partition, 0))
            found[partition.topic] = found.get(partition.topic, 0) + left
        return found

    def _read_partition(self, ledger: Ledger, partition: TopicPartition, ends: LogOffsets) -> int:
        first = ledger.read.get(partition, 0)
        if first > ends.end:
            raise ForeignLedgerError(
                f"the ledger has read {partition.topic}-{partition.partition} up to {first}, it ends at {ends.end}"
            )
        gone = ""
        if first < ends.start:
            gone = (
                f"offsets {first} to {ends.start - 1} of {partition.topic}-{partition.partition} were deleted before the "
                "audit read them"
            )
            ledger.problem(gone)
            first = ends.start
        wanted = OffsetRange(
            topic=partition.topic, partition=partition.partition, first_offset=first, next_offset=ends.end
        )
        number = 0
        try:
            for chunk in chunks(self._client, wanted):
                for part in chunk.records:
                    if gone and len(part.offset):
                        # What was deleted is older than what is still there.
                        until_ms = int(part.timestamp_ms[0]) + CLOCK_SKEW_MS
                        since_ms = min(ledger.rebuilt.values(), default=BEGIN_MS)
                        # Of what is settled nothing has to be read.
                        ledger.problem(gone, Period(since_ms, max(since_ms, until_ms)))
                        if until_ms <= since_ms:
                            del ledger.problems[gone]
                        gone = ""
                    for offset, key, value in _messages(part):
                        take(ledger, partition, offset, key, value, self._client.leader_host, self._wanted)
                        number += 1
                ledger.read[partition] = chunk.next_offset
        except StandstillError as error:
            ledger.problem(f"{partition.topic}-{partition.partition} cannot be read: {error.finding.detail}")
        except (ConnectionFailedError, KafkaError):
            ledger.unread.add(partition)
        return number


def is_input(topic: str) -> bool:
    """Whether a topic of the offline cluster tells the audit something."""
    return topic in OWN_TOPICS or split_topic(topic)[1] in MIRRORED_TOPICS


def take(
    ledger: Ledger,
    partition: TopicPartition,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    host_of: Callable[[TopicPartition], str] = lambda _: NOBODY,
    wanted: Container[str] | None = None,
) -> None:
    """Give one message to the ledger, where it is of a topic that is wanted.

    `host_of` tells which host leads a partition: who leads a copy appends to it.
    """
    topic = partition.topic
    try:
        if topic == ARRIVALS_TOPIC:
            arrival = decode_arrival(key, value)
            if arrival is not None and (wanted is None or arrival.partition.topic in wanted):
                ledger.on_arrival(arrival, host_of(arrival.partition))
        elif topic == FINDINGS_TOPIC:
            ledger.on_mirror_finding(decode_finding(value))
        elif topic == ACCEPTANCES_TOPIC:
            ledger.acceptances.take(acceptances.decode(value))
        elif split_topic(topic)[1] == MONITORING_TOPIC:
            event = _account(value)
            if wanted is None or f"{split_topic(topic)[0]}.{event.topic}" in wanted:
                ledger.on_account(partition, offset, event)
        else:
            _take_count(ledger, topic, value, wanted)
    except Exception as error:  # fastavro raises what it likes for bytes that are not of its schema
        where = f"offset {offset} of {topic}-{partition.partition}"
        ledger.problem(f"{where} is not readable: {type(error).__name__}: {error}"[:500])


def _take_count(ledger: Ledger, topic: str, value: bytes | None, wanted: Container[str] | None) -> None:
    record = decode(value)
    expected = ("offline", record.datacenter) if topic == COUNTS_TOPIC else ("live", split_topic(topic)[0])
    if (record.tier, record.datacenter) != expected:
        raise ValueError(f"a count of {record.tier} tier of {record.datacenter} does not belong here")
    narrowed = record if wanted is None else _narrowed(record, wanted)
    if narrowed is not None:
        ledger.on_count(narrowed)


def _narrowed(record: CountRecord, wanted: Container[str]) -> CountRecord | None:
    """Return what of a count record is of the topics that are wanted, which go by their names in the offline cluster."""
    prefix = f"{record.datacenter}." if record.tier == "live" else ""
    if not isinstance(record, Barrier):
        return record if prefix + record.partition.topic in wanted else None
    return replace(
        record,
        counted={key: end for key, end in record.counted.items() if prefix + key.topic in wanted},
        whole=frozenset(topic for topic in record.whole if prefix + topic in wanted),
    )


def _account(value: bytes | None) -> MonitoringEvent:
    _, content = unframe(value)
    # Accounts of earlier releases end before the process: zeros are its defaults. What comes later is not read.
    content += bytes(PROCESS_SIZE_MIN)
    record: Any = schemaless_reader(io.BytesIO(content), parsed_schema("monitoring_event"), None)
    return MonitoringEvent.from_record(record)


def _messages(part: RecordColumns) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    columns = (part.offset, part.key_start, part.key_size, part.value_start, part.value_size)
    for offset, key, key_size, value, value_size in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        yield (
            offset,
            part.data[key : key + key_size] if key_size >= 0 else None,
            part.data[value : value + value_size] if value_size >= 0 else None,
        )
