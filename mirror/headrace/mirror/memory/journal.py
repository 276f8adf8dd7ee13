"""What the mirror remembers of copies, in topics that all brokers of the cluster share: states and findings, and reports.

`headrace.mirror` (JSON, see `state`, folded by `states`), `headrace.findings` (JSON, see `findings`) and `headrace.sources`
(JSON, see `reports`). Which partition a record goes to depends on no leader, so whoever leads a copy next finds what was
written of it. Invariants:
- a state is written when it is committed, and was read back with no later leadership before it: a deposed leader's late
  one changes nothing, for it and for who reads it;
- who takes a copy over claims it first, so that it reads whatever its predecessor has acted on;
- a finding is decided with the state that it came with: who takes over tells it again unless it is known to be told. Its
  `id` stays the same, so a reader drops the second.
Must not know: where the topics' leaders are, how long a write takes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from headrace.broker.server.embedding import Partition
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.batches import Record
from headrace.mirror.memory.findings import CopyFinding
from headrace.mirror.memory.lead import Lead
from headrace.mirror.memory.own_topics import STATES, WRITTEN_PARTITION
from headrace.mirror.memory.reports import Report
from headrace.mirror.memory.state import (
    LEADER,
    RESTORE,
    Claim,
    RestoreOrder,
    SkipOrder,
    State,
    Term,
    key_of,
    place_of,
    state_key,
)
from headrace.mirror.memory.states import RecordKey, States

logger = get_logger(__name__)
Pair = tuple[bytes, bytes | None]


def _nothing(_: int) -> None: ...


class Topic(Protocol):
    """One of the shared topics, to be appended to."""

    def append(
        self,
        pairs: Sequence[Pair],
        committed: Callable[[int], None] = _nothing,
        *,
        partition: int = WRITTEN_PARTITION,
    ) -> None:
        """Have these committed, behind what was appended before; `committed(offset)` says where the last of them lies."""
        ...


class _Waiting(NamedTuple):
    """`go_on` once the states are read beyond `offset`."""

    offset: int
    go_on: Callable[[], None]


class Journal:
    """Shared by all copiers of this broker. `read_soon` has the states read on at once; without it they are every second."""

    def __init__(self, states: Topic, findings: Topic, reports: Topic) -> None:
        self.findings_count: dict[str, int] = {}
        self.read_soon: Callable[[], None] = lambda: None
        self._states_topic = states
        self._findings_topic = findings
        self._reports_topic = reports
        self._states = States()
        self._read_to = 0
        self._waiting: list[_Waiting] = []
        self._forgotten: set[RecordKey] = set()
        self._is_report_under_way = False
        self._next_report: Report | None = None

    # -- reading

    def read(self, partition: int, records: Iterable[Record], next_offset: int) -> None:
        """Take what a partition of `headrace.mirror` holds up to `next_offset`, from where the last call ended."""
        for record in records:
            try:
                self._states.take(partition, record)
            except ValueError as error:
                logger.warning("record of the mirror's topic is not readable", topic=STATES, reason=error)
            if record.value is None:
                self._forgotten.discard(RecordKey(partition, record.key or b""))
        if partition == WRITTEN_PARTITION:
            self._read_to = next_offset
            due = [waiting for waiting in self._waiting if waiting.offset < next_offset]
            self._waiting = [waiting for waiting in self._waiting if waiting.offset >= next_offset]
            for waiting in due:
                waiting.go_on()

    def reread(self, partition: int) -> None:
        """The partition is read again from its start: its log is not what was read, as after an unclean election."""
        self._states.forget(partition)
        if partition == WRITTEN_PARTITION:
            self._read_to = 0
            self._waiting = [waiting._replace(offset=-1) for waiting in self._waiting]

    def _when_read(self, offset: int, go_on: Callable[[], None]) -> None:
        if offset < self._read_to:
            go_on()
            return
        self._waiting.append(_Waiting(offset, go_on))
        self.read_soon()

    # -- states

    def take_over(
        self,
        lead: Lead,
        source_bootstrap: str,
        ready: Callable[[State], None],
        *,
        start: int | None = None,
    ) -> None:
        """Claim a copy, read its state and write it anew in this leadership's term: `ready(state)` once that is done, or never.

        A new copy has a fresh state, which says where it is to `start`.
        """
        target_id = lead.partition.topic_id
        claim = Claim(target_id=target_id, leader_epoch=lead.leader_epoch)

        def adopt(term: Term) -> None:
            if self._is_superseded(lead, term):
                return
            found = self._states.newest(lead.place, target_id)
            fresh = State(target_id=target_id, source_bootstrap=source_bootstrap, start=start)
            state = replace(found or fresh, term=term, untold=())
            self.write(lead, state, found.untold if found else (), lambda: adopted(state))

        def adopted(state: State) -> None:
            for partition, key in self._states.outdated(lead.place, target_id, state.term):
                self._states_topic.append([(key, None)], partition=partition)
            ready(state)

        def claimed(offset: int) -> None:
            self._when_read(offset, lambda: adopt((lead.leader_epoch, offset)))

        self._states_topic.append([(key_of(lead.place, LEADER), claim.encode())], claimed)

    def _is_superseded(self, lead: Lead, term: Term) -> bool:
        """Whether the copy was claimed in a later term."""
        latest = self._states.claimed(lead.place, lead.partition.topic_id)
        if latest > term:
            logger.info("copy is another leader's", partition=lead.place.decode(), term=term, latest=latest)
        return latest > term

    def write(
        self, lead: Lead, state: State, findings: Sequence[CopyFinding], written: Callable[[], None]
    ) -> None:
        """Write a state, then the findings that came with it; `written` then, unless the copy is another leader's."""
        key = state_key(lead.place, lead.partition.topic_id, state.term)
        saved = replace(state, untold=tuple(findings))

        def tell() -> None:
            if self._is_superseded(lead, state.term):
                return
            if not findings:
                written()
                return
            self._findings_topic.append([(lead.place, found.encode()) for found in findings], told)

        def told(_: int) -> None:
            self._states_topic.append([(key, replace(saved, untold=()).encode())])
            for found in findings:
                self._note(found)
            written()

        self._states_topic.append([(key, saved.encode())], lambda offset: self._when_read(offset, tell))

    def _note(self, finding: CopyFinding) -> None:
        told = {name: value for name, value in finding.as_dict().items() if name not in ("hop", "id")}
        logger.error("mirror finding", **told)
        self.findings_count[finding.kind] = self.findings_count.get(finding.kind, 0) + 1

    def remembers(self, partition: Partition) -> bool:
        """Whether this topic is known as one that was copied to, or is empty and was about to be."""
        found = self._states.newest(place_of(partition.topic, partition.partition), partition.topic_id)
        if found is None:
            return False
        return bool(found.epochs) or found.resumed_at is not None or partition.log.log_end_offset == 0

    def forget(self, partition: Partition) -> None:
        """The partition is no copy any more; nothing happens when it is not known as one."""
        for known in self._states.records(place_of(partition.topic, partition.partition)):
            if known not in self._forgotten:
                self._forgotten.add(known)
                self._states_topic.append([(known.key, None)], partition=known.partition)

    # -- orders

    def resume_of(self, partition: Partition) -> str | None:
        """The stop that was told to end last, if any."""
        return self._states.resume_of(place_of(partition.topic, partition.partition))

    def skip_of(self, partition: Partition) -> SkipOrder | None:
        """The rot that was told to be passed over last, if any."""
        return self._states.skip_of(place_of(partition.topic, partition.partition))

    def skip_at(self, place: bytes) -> SkipOrder | None:
        """The same of a partition that is brought into an aggregate, `<source>.<topic>-<partition>`."""
        return self._states.skip_of(place)

    def restore_of(self, lead: Lead) -> RestoreOrder | None:
        """How the copy is to be restored, as long as it is not."""
        if not self._states.restores_count:
            return None
        return self._states.restore_of(lead.place, lead.partition.topic_id)

    def restored(self, lead: Lead, state: State, done: Callable[[], None]) -> None:
        """The copy is what was ordered, also for whoever leads it next: write its state, then remove the order; `done` then."""

        def written() -> None:
            self._states_topic.append(
                [(key_of(lead.place, RESTORE), None)], lambda offset: self._when_read(offset, done)
            )

        self.write(lead, state, (), written)

    def is_paused(self, topic: str) -> bool:
        """Whether the copy of this name was told to pause."""
        return self._states.is_paused(topic)

    def limit_of(self, source: str) -> int | None:
        """Bytes a second that were ordered for a source; None: as it is configured."""
        return self._states.limit_of(source)

    def choice_of(self, source: str) -> re.Pattern[str] | None:
        """Which topics of a source were chosen; None: all that are configured."""
        return self._states.choice_of(source)

    # -- reports

    def tell(self, report: Report) -> None:
        """Write a report; while one is being written the newest waits for it."""
        if self._is_report_under_way:
            self._next_report = report
            return
        self._is_report_under_way = True
        self._reports_topic.append([(str(report.broker).encode(), report.encode())], self._reported)

    def _reported(self, _: int) -> None:
        self._is_report_under_way = False
        report, self._next_report = self._next_report, None
        if report is not None:
            self.tell(report)


class CopyJournal:
    """The journal as one copier sees it: what it writes is written one after the other."""

    def __init__(self, journal: Journal, lead: Lead, arrived: Callable[[int, int, int], None]) -> None:
        """`arrived(first offset, last offset, now)` notes an append."""
        self.arrived = arrived
        self._journal = journal
        self._lead = lead
        self._writes: deque[tuple[State, Sequence[CopyFinding], Callable[[], None]]] = deque()

    def write(self, state: State, findings: Sequence[CopyFinding], written: Callable[[], None]) -> None:
        """Have a state and the findings that came with it written; `written` then, never once the leadership is over."""
        self._writes.append((state, findings, written))
        if len(self._writes) == 1:
            self._begin()

    def _begin(self) -> None:
        state, findings, _ = self._writes[0]
        self._journal.write(self._lead, state, findings, self._ended)

    def _ended(self) -> None:
        _, _, written = self._writes[0]
        written()
        self._writes.popleft()
        if self._writes:
            self._begin()
