"""One partition's copy: asks its source, appends what its course says comes next, and stops where that says so.

    copier.located(…)            the source's metadata, seen again and again
    copier.wants(now_ms)         → Survey | Fetch | None: what to ask the partition's leader next
    copier.surveyed / fetched / refused / failed    what came of it

Invariants: the copy is, offset by offset, one lineage of the source's log: a batch is appended only when the source served
it as the one that follows the log's end; what cannot be that stops the partition with a finding, and nothing is passed
over without one; an answer to a question that no longer stands is dropped. While the journal is being written nothing is
asked, appended or dropped: a source's new leader epoch is committed there before its first batch is appended, a stop before
anything else happens. What is written is of a copy that is committed as far as it goes, so it is true of the log of whoever
leads it next. Must not know: sockets, tasks, clocks, where the journal is kept. Topic ids: KIP-516.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from headrace.broker.errors import (
    CorruptMessageError,
    KafkaError,
    UnsupportedForMessageFormatError,
    error_of,
)
from headrace.broker.log.segment import Place
from headrace.broker.wire.batches import check_crc
from headrace.mirror.copy.course import Course, Offsets, Refusal, Step, Stop
from headrace.mirror.copy.log import Target
from headrace.mirror.copy.notes import Journal, Notes
from headrace.mirror.copy.progress import Progress
from headrace.mirror.copy.rot import places, rotten_offsets
from headrace.mirror.memory.findings import CopyFinding, Kind
from headrace.mirror.memory.state import NO_ID, Skip, SkipOrder, State, stop_id
from headrace.mirror.pause import Pause
from headrace.mirror.questions import UNKNOWN, Fetch, Located, Survey, Surveyed

VANISHED_AFTER_MS = 30_000
ROTTEN, PAUSED = "rotten", "paused"
TOO_FEW_IN_SYNC = "the copy has fewer replicas in sync than min.insync.replicas asks for"
NOTHING_THERE = "resumed: the source has no messages at these offsets"
REST_LOST = "these offsets were of the rotten batch that was skipped on order, or of nothing"
NOT_WRITTEN = "what is known of the copy is not written to headrace.mirror or headrace.findings yet"


class Phase(StrEnum):
    """Where a copier is; the value is what the metrics say."""

    LOCATING = "locating"
    SURVEYING = "surveying"
    COPYING = "copying"
    STOPPED = "stopped"


class Copier:
    """See the module's text; `topic` is the source's name for it."""

    def __init__(
        self,
        datacenter: str,
        topic: str,
        partition: int,
        *,
        target: Target,
        journal: Journal,
        state: State,
        backoff_ms: tuple[int, int] = (100, 5_000),
        now_ms: int = UNKNOWN,
    ) -> None:
        self.datacenter = datacenter
        self.topic = topic
        self.partition = partition
        self.phase = Phase.LOCATING if state.stopped is None else Phase.STOPPED
        self.located_at: Located | None = None
        self.progress = Progress(began_ms=now_ms)
        self.problem = ""
        self.is_paused = False
        self._target = target
        self._journal = journal
        self._pause = Pause(*backoff_ms)
        self._source_start_offset = UNKNOWN
        self._missing_since_ms: int | None = None
        self._notes = Notes(journal, state)
        self._awaits_commit = False

    @property
    def next_offset(self) -> int:
        """Where the source's next batch belongs: the log's end, or behind what was skipped there."""
        return self.state.next_offset(self._target.log_end_offset)

    @property
    def condition(self) -> str:
        """The phase, or "rotten" while what the source sends is refused, or "paused" while a person has it so."""
        if self.state.rotten is not None:
            return ROTTEN
        return PAUSED if self.is_paused and self.phase is not Phase.STOPPED else self.phase.value

    @property
    def state(self) -> State:
        """What is known of the copy beyond its log."""
        return self._notes.state

    @property
    def obstacle(self) -> str:
        """Why the copy cannot go on, whatever the source says; or nothing."""
        if self._notes.is_writing:
            return NOT_WRITTEN
        return "" if self._target.has_enough_in_sync else TOO_FEW_IN_SYNC

    @property
    def awaits_metadata(self) -> bool:
        """Whether it has nothing to ask before it is located anew."""
        found = self.located_at
        return self.is_paused or self.phase is Phase.STOPPED or found is None or found.leader < 0

    def lag_messages(self, now_ms: int) -> int | None:
        """Messages not copied yet; None when nobody knows, as of a stopped partition, whose source is not asked."""
        return None if self.phase is Phase.STOPPED else self.progress.lag_messages(self.next_offset, now_ms)

    def lag_ms(self, now_ms: int) -> int | None:
        """How far the copy is behind in time; None when nobody knows."""
        return None if self.phase is Phase.STOPPED else self.progress.lag_ms(self.next_offset, now_ms)

    # -- what is known of the source

    def located(self, found: Located | None, now_ms: int) -> None:
        """The partition in fresh metadata of the source; None: it is not listed."""
        if found is not None and found == self.located_at:
            return
        if self.phase is Phase.STOPPED:
            self.located_at = found
            return
        if found is None:
            self._missing(now_ms)
            return
        self._missing_since_ms = None
        recreation = self._course().recreation(found)
        if recreation is not None:
            if not self._notes.is_writing:
                self._stop(recreation, now_ms)
            return
        if (self.state.source_id, self.state.source_bootstrap) != (found.topic_id, found.bootstrap):
            source_id = found.topic_id if found.topic_id != NO_ID else self.state.source_id
            self._notes.write(replace(self.state, source_id=source_id, source_bootstrap=found.bootstrap))
        self.phase, self.located_at = Phase.SURVEYING, found

    def _course(self) -> Course:
        """What is known now of where the copy goes on."""
        found = self.located_at
        return Course(
            state=self.state,
            log_start_offset=self._target.log_start_offset,
            log_end_offset=self._target.log_end_offset,
            source_start_offset=self._source_start_offset,
            source_end_offset=self.progress.source_end_offset,
            is_compacted=found is not None and found.is_compacted,
        )

    def _missing(self, now_ms: int) -> None:
        """Metadata of a broker that has just started may lack what is there: only a lasting absence is a finding."""
        self.phase, self.located_at = Phase.LOCATING, None
        self.progress.source_end_offset = UNKNOWN
        if self._missing_since_ms is None:
            self._missing_since_ms = now_ms
        elif now_ms - self._missing_since_ms >= VANISHED_AFTER_MS and self._may_write():
            end = self._target.log_end_offset
            reason = "the source no longer lists the partition"
            self._notes.write(self.state, self._finding(Kind.VANISHED, (end, end - 1), reason, now_ms))

    # -- what to ask

    def wants(self, now_ms: int) -> Survey | Fetch | None:
        """What to ask the leader now; None while stopped, pausing, writing or without a leader."""
        found = self.located_at
        if found is None or self.awaits_metadata or self._pause.lasts(now_ms) or not self._may_go_on():
            return None
        end = self._target.log_end_offset
        if self.phase is Phase.SURVEYING:
            return Survey(
                topic_id=found.topic_id,
                leader_epoch=found.leader_epoch,
                log_end_offset=end,
                epoch=self.state.epoch_before(end),
                # A cleaner may have written a compacted source's batch anew.
                tail=None if found.is_compacted or self._course().may_jump else self._target.last_batch(),
                start=self.state.start if self._course().is_empty else None,
            )
        if self.phase is Phase.COPYING:
            offset = self._course().wanted_offset
            return Fetch(topic_id=found.topic_id, leader_epoch=found.leader_epoch, offset=offset)
        return None

    def _may_go_on(self) -> bool:
        """Whether the copy takes messages and the journal has what was decided; a survey needs all of it committed."""
        is_ahead = self.phase is Phase.COPYING and not self._awaits_commit
        return not self.obstacle and (is_ahead or self._target.is_committed)

    def _is_of_now(self, request: Survey | Fetch, phase: Phase) -> bool:
        """Whether the question that was answered still stands: delayed and repeated answers are dropped."""
        found = self.located_at
        return (
            self.phase is phase
            and not self.is_paused
            and found is not None
            and not self.obstacle
            and (request.topic_id, request.leader_epoch) == (found.topic_id, found.leader_epoch)
        )

    # -- answers

    def surveyed(self, request: Survey, found: Surveyed, now_ms: int) -> None:
        """The leader's log start and end, and the end of the last epoch that was copied."""
        end = self._target.log_end_offset
        if not self._is_of_now(request, Phase.SURVEYING) or request.log_end_offset != end:
            return
        self.progress.answered(found.log_end_offset, now_ms)
        if self.progress.max_timestamp < 0 and request.tail is not None:
            self.progress.max_timestamp = request.tail.max_timestamp
        self._source_start_offset = found.log_start_offset
        if found.log_end_offset < self.next_offset:
            # What was skipped is no longer there: other messages may come in its place.
            self._notes.write(replace(self.state, skipped=None))
        self._notes.write(self._course().begun(found))
        course = self._course()
        if course.may_jump:
            self._tell_passed(course.passed_anew(found), now_ms)
        verdict = course.of_survey(request, found)
        if isinstance(verdict, Stop):
            self._stop(verdict, now_ms)
        elif verdict is Step.WAIT:
            self._pause.begin(now_ms)
        else:
            self.phase = Phase.COPYING

    def _tell_passed(self, passed: Offsets | None, now_ms: int) -> None:
        if passed is not None:
            reason = "resumed, and the source was truncated again: its new messages at these offsets are passed over"
            loss = self._finding(Kind.LOSS, passed, reason, now_ms)
            self._notes.write(replace(self.state, passed_from=passed[0]), loss)

    def fetched(
        self, request: Fetch, records: memoryview, *, high_watermark: int, log_start_offset: int, now_ms: int
    ) -> None:
        """Batches of the source from `request.offset` on; the last may be cut."""
        if not self._is_of_now(request, Phase.COPYING):
            return
        self.progress.answered(high_watermark, now_ms)
        self._source_start_offset = max(self._source_start_offset, log_start_offset)
        try:
            self._take(records, now_ms)
        except UnsupportedForMessageFormatError as error:
            place, reason = self.next_offset, f"{error}; the source must keep format 2"
            self._stop(Stop(kind=Kind.FORMAT, offsets=(place, place), reason=reason), now_ms)
        except CorruptMessageError as error:
            self._refuse(Refusal(offsets=(self.next_offset, UNKNOWN), reason=str(error)), now_ms)
        except KafkaError as error:
            self._look_again(str(error), now_ms)
        if self.next_offset >= high_watermark:
            self.progress.caught_up_ms = now_ms

    def unchanged(self, now_ms: int) -> None:
        """The leader answered again, and would have said so if the log's end were another than it said last."""
        end = self.progress.source_end_offset
        if self.phase is Phase.COPYING and end >= 0:
            self.progress.answered(end, now_ms)
            if self.next_offset >= end:
                self.progress.caught_up_ms = now_ms

    def refused(self, request: Survey | Fetch, code: int, now_ms: int) -> None:
        """The leader answered with an error code."""
        if self.phase in (Phase.COPYING, Phase.SURVEYING):
            self.problem = str(error_of(code))
            self.phase = Phase.SURVEYING
            self._pause.begin(now_ms)

    def failed(self, reason: str, now_ms: int) -> None:
        """No answer, or one that was no use: how far the source is by now is not known."""
        self.progress.source_end_offset = UNKNOWN
        self._look_again(reason, now_ms)

    def _look_again(self, reason: str, now_ms: int) -> None:
        self.problem = reason
        if self.phase is Phase.COPYING:
            self.phase = Phase.SURVEYING
        self._pause.begin(now_ms)

    def pause(self, *, is_paused: bool) -> None:
        """A person's order: nothing is asked or appended while it is paused; it is located anew when that ends."""
        if is_paused != self.is_paused:
            self.is_paused = is_paused
            if self.phase is not Phase.STOPPED:
                self.phase, self.located_at = Phase.LOCATING, None

    def resume(self, stop: str, now_ms: int) -> None:
        """Go on after the stop named `stop`: from the log's end, or the source's start when that is later."""
        stopped = self.state.stopped
        if stopped is None or stop_id(stopped) != stop or not self._may_write():
            return
        going_on, lost = self._course().resumed()
        told: list[CopyFinding] = []
        if lost is not None:
            reason = (
                f"resumed after a {stopped.kind}: the source's new messages at these offsets are passed over"
            )
            told.append(self._finding(Kind.LOSS, lost, reason, now_ms))
        self._notes.write(going_on, *told)
        self.phase, self.located_at, self._source_start_offset = Phase.LOCATING, None, UNKNOWN
        self._went_well()

    def skip(self, order: SkipOrder, now_ms: int) -> None:
        """Pass over the rot that is refused now, if it is what the order names: its offsets are never copied."""
        rotten = self.state.rotten
        if rotten is None or not order.is_of(rotten) or self._is_past(rotten) or not self._may_write():
            return
        reason = f"skipped on order, for the source's data is rotten: {rotten.reason}"
        loss = self._finding(Kind.LOSS, (rotten.first_offset, order.last_offset), reason, now_ms)
        skipped = Skip(
            log_end_offset=self._target.log_end_offset,
            first_offset=rotten.first_offset,
            last_offset=order.last_offset,
        )
        self._notes.write(replace(self.state, rotten=None, skipped=skipped), loss)
        self._went_well()

    def checked(self, first: int, end: int, difference: tuple[int, str] | None, now_ms: int) -> None:
        """Compared with its source from `first` up to `end`; `difference` is the first offset that is not the same, and why."""
        known = self.state.different
        if difference is not None:
            offset, reason = difference
            found = self._finding(Kind.DIFFERENCE, (offset, offset), reason, now_ms)
            if known is None or known.id != found.id:
                self._notes.write(replace(self.state, different=found), found)
        elif known is not None and first <= known.first_offset < end:
            self._notes.write(replace(self.state, different=None))

    # -- appending

    def _take(self, records: memoryview, now_ms: int) -> None:
        """Append the batches that follow the log's end, run by run of one leader epoch.

        Raises CorruptMessageError and UnsupportedForMessageFormatError for bytes that are no batch, after what precedes them.
        """
        run: list[Place] = []
        found, failure = places(records)
        if records and not found and failure is None:
            # A source sends the first batch of an answer whole, however large it is (KIP-74).
            raise CorruptMessageError(
                f"the source's batch at offset {self.next_offset} claims to be longer than what the source sends of it"
            )
        course, passed = self._course(), None
        for place in found:
            step = course.of_batch(records, place, run[-1].header.next_offset if run else None)
            if step is Step.PASS:
                passed = place
                continue
            if step is Step.FOLLOW and passed is not None and not run:
                self._tell_lost(course.left_of_skipped(records, passed, place), REST_LOST, now_ms)
            if step is Step.JUMP:
                self._tell_lost(course.jumped(place.header), NOTHING_THERE, now_ms)
            elif step is not Step.FOLLOW:
                if self._append(records, run, now_ms):
                    self._depart(step, now_ms)
                return
            if run and place.header.leader_epoch != run[-1].header.leader_epoch:
                if not self._append(records, run, now_ms):
                    return
                run = []
            run.append(place)
        if not self._append(records, run, now_ms):
            return
        if failure is not None:
            raise failure
        self._went_well()

    def _tell_lost(self, lost: Offsets | None, reason: str, now_ms: int) -> None:
        if lost is not None:
            self._notes.write(self.state, self._finding(Kind.LOSS, lost, reason, now_ms))

    def _depart(self, departure: Step | Stop | Refusal, now_ms: int) -> None:
        if isinstance(departure, Stop):
            self._stop(departure, now_ms)
        elif isinstance(departure, Refusal):
            self._refuse(departure, now_ms)

    def _append(self, records: memoryview, run: list[Place], now_ms: int) -> bool:
        """Append batches of one leader epoch, of a run with rot what comes before it; whether all were appended.

        While something has to be written first nothing is: the batches are asked for again afterwards.
        """
        if not run:
            return True
        first = run[0].header
        if first.leader_epoch != self.state.epoch_before(first.base_offset + 1):
            if not self._may_write():
                return False
            self._notes.write(self.state.with_epoch(first.leader_epoch, first.base_offset))
        if self._notes.is_writing:
            return False
        if first.base_offset != self._target.log_end_offset and self._course().begins:
            self._target.start_at(first.base_offset)
        try:
            self._append_run(records, run, now_ms)
        except CorruptMessageError:
            self._append_before_rot(records, run, now_ms)
            return False
        return True

    def _append_run(self, records: memoryview, run: list[Place], now_ms: int) -> None:
        begin, end = run[0].position, run[-1].position + run[-1].header.size
        self._target.append(records[begin:end])
        self._awaits_commit = False
        self.progress.bytes_copied += end - begin
        self.progress.batches_copied += len(run)
        self.progress.max_timestamp = run[-1].header.max_timestamp
        self._journal.arrived(run[0].header.base_offset, run[-1].header.last_offset, now_ms)

    def _append_before_rot(self, records: memoryview, run: list[Place], now_ms: int) -> None:
        good = 0
        while good < len(run) and check_crc(records, *run[good]):
            good += 1
        if good:
            self._append_run(records, run[:good], now_ms)
        rotten = run[min(good, len(run) - 1)]
        reason = "the checksum of the source's batch is wrong; it is asked for again until it is right"
        offsets = rotten_offsets(records, rotten, self.progress.source_end_offset)
        self._refuse(Refusal(offsets=offsets, reason=reason), now_ms)

    # -- what happens then

    def _refuse(self, refusal: Refusal, now_ms: int) -> None:
        """Bad data: never appended, asked for again, told once."""
        self._pause.begin(now_ms)
        self.problem = refusal.reason
        if not self._may_write():
            return
        finding = self._finding(Kind.ROT, refusal.offsets, refusal.reason, now_ms)
        if self.state.rotten is None or self.state.rotten.id != finding.id:
            self._notes.write(replace(self.state, rotten=finding), finding)

    def _stop(self, stop: Stop, now_ms: int) -> None:
        if not self._may_write():
            self._look_again(stop.reason, now_ms)
            return
        finding = self._finding(stop.kind, stop.offsets, stop.reason, now_ms)
        self._notes.write(replace(self.state, stopped=finding, rotten=None), finding)
        self.phase = Phase.STOPPED
        self.problem = stop.reason

    # -- writing

    def _may_write(self) -> bool:
        """Whether what is decided now holds for the next leader, too; otherwise nothing is asked before it does."""
        self._awaits_commit = not self._target.is_committed
        return not self._awaits_commit

    def _finding(self, kind: Kind, offsets: tuple[int, int], reason: str, now_ms: int) -> CopyFinding:
        return CopyFinding(
            kind=kind,
            datacenter=self.datacenter,
            topic=self.topic,
            partition=self.partition,
            first_offset=offsets[0],
            last_offset=offsets[1],
            detected_ms=now_ms,
            reason=reason,
        )

    def _went_well(self) -> None:
        self._pause.end()
        self.problem = ""
        rotten = self.state.rotten
        if rotten is not None and self._is_past(rotten) and self._target.is_committed:
            self._notes.write(replace(self.state, rotten=None))

    def _is_past(self, rotten: CopyFinding) -> bool:
        """It was right at last, and a crash came before that was noted."""
        return self.next_offset > rotten.first_offset
