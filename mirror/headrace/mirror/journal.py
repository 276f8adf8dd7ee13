"""What the mirror of this broker remembers: arrivals, findings, states and reports, in four topics of the offline cluster.

`headrace.arrivals` (see `arrivals`), `headrace.findings` (JSON, see `findings`), `headrace.mirror` (JSON by key, see
`state`) and `headrace.sources` (JSON, see `reports`). Each broker writes about its own partitions to the partitions that it
leads itself, so a record is in the local log when the call returns. Orders come the other way: the command publishes them
to `headrace.mirror`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from headrace.broker.errors import KafkaError
from headrace.broker.server.embedding import EmbeddingHost, Partition
from headrace.broker.structured_log import get_logger
from headrace.mirror import arrivals, reports, state
from headrace.mirror.arrivals import Arrival
from headrace.mirror.findings import CopyFinding
from headrace.mirror.local_topic import LocalTopic, records
from headrace.mirror.reports import Report
from headrace.mirror.state import ORDER_SEPARATOR, SkipOrder, State

logger = get_logger(__name__)
ARRIVALS, FINDINGS, STATES = "headrace.arrivals", "headrace.findings", "headrace.mirror"
SOURCES = "headrace.sources"
FOREVER = {"retention.ms": "-1"}
COMPACTED = {"cleanup.policy": "compact"}
AN_HOUR = {"retention.ms": "3600000", "segment.ms": "600000"}
WINDOW_RECORDS = 2 * arrivals.SUMMARY_EVERY


class Journal:
    """Shared by all copiers of this broker."""

    def __init__(
        self,
        arrival_topic: LocalTopic,
        finding_topic: LocalTopic,
        state_topic: LocalTopic,
        report_topic: LocalTopic,
    ) -> None:
        self.findings_count: dict[str, int] = {}
        self._arrivals = arrival_topic
        self._findings = finding_topic
        self._states = state_topic
        self._reports = report_topic
        self._pending: list[tuple[bytes, bytes]] = []
        self._covered: dict[bytes, int] = {}
        self._since_summary = 0
        self._state_of: dict[bytes, State] = {}
        self._resumes: dict[bytes, str] = {}
        self._skips: dict[bytes, SkipOrder] = {}
        self._read_to: dict[int, int] = {}

    @classmethod
    async def open(cls, host: EmbeddingHost) -> Journal:
        """Create what is missing of the four topics and read what they hold."""
        journal = cls(
            await LocalTopic.open(host, ARRIVALS, {}),
            await LocalTopic.open(host, FINDINGS, FOREVER),
            await LocalTopic.open(host, STATES, COMPACTED),
            await LocalTopic.open(host, SOURCES, AN_HOUR),
        )
        journal.read_states()
        return journal

    # -- states and orders

    def read_states(self) -> None:
        """Take what was appended to the local partitions of `headrace.mirror` since the last call."""
        for partition in self._states.partitions:
            begin = self._read_to.get(partition.partition, 0)
            end = partition.log.log_end_offset
            for record in records(partition, begin, end) if end > begin else ():
                self._take(record.key or b"", record.value)
            self._read_to[partition.partition] = end

    def _take(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._state_of.pop(key, None)
            return
        try:
            place, _, order = key.partition(ORDER_SEPARATOR.encode())
            match order.decode():
                case "":
                    self._state_of[key] = state.decode(value)
                case state.RESUME:
                    self._resumes[place] = state.decode_resume(value)
                case state.SKIP:
                    self._skips[place] = state.decode_skip(value)
                case unknown:
                    raise ValueError(f"an order {unknown!r} that this version does not know")
        except ValueError as error:
            logger.warning("record of the mirror's topic is not readable", topic=STATES, reason=error)

    def state_of(self, partition: Partition, source_bootstrap: str) -> State:
        """What is remembered of a target partition; a fresh state, remembered from now on, for a new one."""
        found = self._state_of.get(state.state_key(partition.topic, partition.partition))
        if found is not None and found.target_id == partition.topic_id:
            return found
        fresh = State(target_id=partition.topic_id, source_bootstrap=source_bootstrap)
        self.save(partition, fresh)
        return fresh

    def remembers(self, partition: Partition) -> bool:
        """Whether this topic is known as one that was copied to, or is empty and was about to be."""
        found = self._state_of.get(state.state_key(partition.topic, partition.partition))
        if found is None or found.target_id != partition.topic_id:
            return False
        return bool(found.epochs) or found.resumed_at is not None or partition.log.log_end_offset == 0

    def forget(self, partition: Partition) -> None:
        """The partition is no copy any more; nothing happens when it is not known as one."""
        key = state.state_key(partition.topic, partition.partition)
        if self._state_of.pop(key, None) is not None:
            self._states.append([(key, None)])

    def resume_of(self, partition: Partition) -> str | None:
        """The stop that was told to end last, if any."""
        return self._resumes.get(state.state_key(partition.topic, partition.partition))

    def skip_of(self, partition: Partition) -> SkipOrder | None:
        """The rot that was told to be passed over last, if any."""
        return self._skips.get(state.state_key(partition.topic, partition.partition))

    def save(self, partition: Partition, new: State) -> None:
        key = state.state_key(partition.topic, partition.partition)
        self._states.append([(key, new.encode())])
        self._state_of[key] = new

    # -- findings

    def report(self, finding: CopyFinding) -> None:
        logger.error(
            "mirror finding", **{k: v for k, v in finding.as_dict().items() if k not in ("hop", "id")}
        )
        key = state.state_key(f"{finding.datacenter}.{finding.topic}", finding.partition)
        self._findings.append([(key, finding.encode())])
        self.findings_count[finding.kind] = self.findings_count.get(finding.kind, 0) + 1

    # -- reports

    def last_report(self) -> Report | None:
        """The last that this broker wrote before its start."""
        last = None
        for partition in self._reports.partitions:
            for record in records(partition, 0, partition.log.log_end_offset):
                last = record
        try:
            return None if last is None else reports.decode(last.value or b"")
        except ValueError as error:
            logger.warning("record of the mirror's topic is not readable", topic=SOURCES, reason=error)
            return None

    def tell(self, report: Report) -> None:
        self._reports.append([(str(report.broker).encode(), report.encode())])

    # -- arrivals

    def arrived(self, partition: Partition, arrival: Arrival) -> None:
        """Note an append; written with the next `flush`, which follows every answered fetch."""
        key = state.state_key(partition.topic, partition.partition)
        self._pending.append((key, arrivals.encode(arrival)))
        self._covered[key] = arrival.last_offset + 1

    def flush(self, now_ms: int) -> None:
        """Write the arrivals noted, and from time to time how far every partition is recorded."""
        if not self._pending:
            return
        self._since_summary += len(self._pending)
        if self._since_summary >= arrivals.SUMMARY_EVERY:
            self._since_summary = 0
            self._pending += [
                (key, arrivals.encode(Arrival(end, end - 1, now_ms))) for key, end in self._covered.items()
            ]
        while self._pending:
            self._arrivals.append(self._pending[: arrivals.BATCH_COUNT_MAX])
            del self._pending[: arrivals.BATCH_COUNT_MAX]

    def complete_arrivals(self, partitions: Iterable[Partition], now_ms: int) -> None:
        """Record what a crash left unrecorded of these partitions, estimated by when their logs changed last."""
        wanted = {
            state.state_key(p.topic, p.partition): p
            for p in partitions
            if state.state_key(p.topic, p.partition) not in self._covered
            and p.log.log_start_offset < p.log.log_end_offset
        }
        if not wanted:
            return
        ends = self._recorded_ends(set(wanted))
        for key, partition in wanted.items():
            own_log = partition.log
            arrival = arrivals.missing(
                ends.get(key),
                own_log.log_start_offset,
                own_log.log_end_offset,
                _changed_ms(own_log.directory),
            )
            if arrival is not None:
                logger.warning("arrival times are estimated", partition=key.decode(), **arrival._asdict())
                self.arrived(partition, arrival)
            self._covered[key] = own_log.log_end_offset
        self.flush(now_ms)

    def _recorded_ends(self, wanted: set[bytes]) -> dict[bytes, int]:
        """Reads backwards in growing windows until every key was seen or the log begins."""
        ends: dict[bytes, int] = {}
        window = WINDOW_RECORDS
        while True:
            found = {}
            for partition in self._arrivals.partitions:
                end = partition.log.log_end_offset
                pairs = ((r.key or b"", r.value or b"") for r in records(partition, end - window, end))
                found.update(arrivals.recorded_ends(pairs))
            ends = {key: end for key, end in found.items() if key in wanted}
            if wanted <= ends.keys() or all(
                p.log.log_end_offset - window <= p.log.log_start_offset for p in self._arrivals.partitions
            ):
                return ends
            window *= 4


class PartitionJournal:
    """The journal as one copier sees it."""

    def __init__(self, journal: Journal, partition: Partition) -> None:
        self._journal = journal
        self._partition = partition

    def save(self, state: State) -> None:
        self._journal.save(self._partition, state)

    def report(self, finding: CopyFinding) -> None:
        self._journal.report(finding)

    def arrived(self, first_offset: int, last_offset: int, now_ms: int) -> None:
        self._journal.arrived(self._partition, Arrival(first_offset, last_offset, now_ms))


def _changed_ms(directory: str) -> int:
    """When a log was last written to."""
    try:
        return max(int(os.stat(path).st_mtime * 1000) for path in Path(directory).glob("*.log"))
    except (OSError, ValueError) as error:
        raise KafkaError(f"{directory} has no log file: {error}") from error
