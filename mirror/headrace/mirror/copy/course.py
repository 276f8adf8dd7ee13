"""What keeps a copy one lineage of its source's log: where it goes on, what may come next there, and what stops it.

    Course(…).of_survey(request, found)      → GO_ON | WAIT | Stop
    Course(…).of_batch(records, place, …)    → PASS | JUMP | FOLLOW | Stop | Refusal

Decides from what is known at one moment and changes nothing; who appends, writes and asks is the copier. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from headrace.broker.log.segment import Place
from headrace.broker.wire.batches import BatchHeader, check_crc
from headrace.mirror.copy.rot import rotten_offsets
from headrace.mirror.copy.survey import truncation
from headrace.mirror.memory.findings import Kind
from headrace.mirror.memory.state import NO_ID, State
from headrace.mirror.questions import UNKNOWN, Located, Survey, Surveyed

Offsets = tuple[int, int]
"""First and last; the last is -1 where nothing tells."""


class Step(Enum):
    """What else than a stop follows of an answer: a survey's are `GO_ON` and `WAIT`, a batch's the other three."""

    GO_ON = "the copy's end is the source's"
    WAIT = "the source is not there yet"
    PASS = "not asked for: it is passed over"
    JUMP = "the copy goes on here, wherever that is"
    FOLLOW = "the batch comes next"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Nothing may be copied until a person says so."""

    kind: Kind
    offsets: Offsets
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Bad data: to be asked for again until it is right."""

    offsets: Offsets
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The copy's state and log, and what its source said last: where its log begins and ends, whether a cleaner compacts it."""

    state: State
    log_start_offset: int
    log_end_offset: int
    source_start_offset: int = UNKNOWN
    source_end_offset: int = UNKNOWN
    is_compacted: bool = False

    @property
    def next_offset(self) -> int:
        """Where the source's next batch belongs: the log's end, or behind what was skipped there."""
        return self.state.next_offset(self.log_end_offset)

    @property
    def wanted_offset(self) -> int:
        """As `next_offset`; for a copy that may begin or go on elsewhere, the source's start when that is later."""
        return max(self.next_offset, self.source_start_offset) if self.may_jump else self.next_offset

    @property
    def may_jump(self) -> bool:
        return self.is_empty or self.is_realigning

    @property
    def is_empty(self) -> bool:
        """Nothing was ever copied."""
        end = self.log_end_offset
        return self.log_start_offset == end and self.state.epoch_before(end) is None

    @property
    def is_realigning(self) -> bool:
        """Resumed, and nothing was appended since."""
        return self.state.resumed_at == self.log_end_offset

    @property
    def begins(self) -> bool:
        """Whether the copy begins with the next batch, wherever that is."""
        return self.is_empty and self.next_offset == max(self.log_end_offset, self.state.begins_at or 0)

    def begun(self, found: Surveyed) -> State:
        """The state once it is known where a copy begins; the same where it is, or where the copy is no new one."""
        state = self.state
        if not self.is_empty:
            return state
        if state.start is not None and found.begin >= 0:
            return replace(state, start=None, begins_at=max(found.begin, found.log_start_offset))
        if state.begins_at is not None and found.log_end_offset < state.begins_at:
            # The source lost its tail before anything was copied: its new messages are none that were passed over.
            return replace(state, begins_at=found.log_end_offset)
        return state

    # -- the source's topic

    def recreation(self, found: Located) -> Stop | None:
        """Whether the source's topic was deleted and created again."""
        known = self.state.source_id
        if NO_ID in (known, found.topic_id) or known == found.topic_id:
            return None
        reason = f"the topic's id was {known} and is {found.topic_id}: it was deleted and created again"
        return Stop(kind=Kind.RECREATION, offsets=(0, self.log_end_offset - 1), reason=reason)

    # -- surveys

    def of_survey(self, request: Survey, found: Surveyed) -> Step | Stop:
        """Whether the copy's end is still where the source's log was; `request.log_end_offset` is the copy's end."""
        end = self.log_end_offset
        if self.may_jump:
            is_begun = not self.is_empty or self.state.start is None
            return Step.GO_ON if is_begun and found.log_end_offset >= end else Step.WAIT
        if self.is_gone(found):
            reason = f"the source begins at {found.log_start_offset}, the copy ends at {end}"
            offsets = (self.next_offset, found.log_start_offset - 1)
            return Stop(kind=Kind.GAP, offsets=offsets, reason=reason)
        lost = truncation(request, found)
        return Step.GO_ON if lost is None else Stop(kind=Kind.TRUNCATION, offsets=lost[0], reason=lost[1])

    def is_gone(self, found: Surveyed) -> bool:
        """The source has already deleted what comes next."""
        return found.log_start_offset > self.next_offset

    def passed_anew(self, found: Surveyed) -> Offsets | None:
        """Resumed, and the source lost more than was told then: it is another one from further below."""
        passed_from = self.state.passed_from
        if passed_from is None:
            return None
        agreed = min(found.log_end_offset, passed_from)
        if found.epoch >= 0:
            agreed = min(agreed, found.epoch_end, self.state.epoch_end(found.epoch, passed_from))
        return (agreed, passed_from - 1) if agreed < passed_from else None

    # -- batches

    def of_batch(self, records: memoryview, place: Place, taken_to: int | None) -> Step | Stop | Refusal:
        """What a batch of an answer is to the copy; `taken_to` is where the batch before it ends, once one was taken."""
        header = place.header
        if taken_to is None:
            if self._is_passed(header) or self._is_rot_behind(records, place):
                return Step.PASS
            if self.may_jump:
                return self._lie(header) or Step.JUMP
            taken_to = self.next_offset
        if not self.follows(header, taken_to):
            return self._departure(records, place, taken_to)
        return (self._lie(header) if header.base_offset > taken_to else None) or Step.FOLLOW

    def _is_passed(self, header: BatchHeader) -> bool:
        """A batch before the place that was asked for: a broker may begin earlier; a resumed copy passes it over."""
        overlaps = header.base_offset < self.log_end_offset and not self.is_empty
        return header.last_offset < self.wanted_offset or (overlaps and self.is_realigning)

    def _is_rot_behind(self, records: memoryview, place: Place) -> bool:
        """A rotten batch that was copied before it rotted, or skipped, and whose header claims to reach further."""
        return place.header.base_offset < self.next_offset and not check_crc(records, *place)

    def left_of_skipped(self, records: memoryview, passed: Place, following: Place) -> Offsets | None:
        """What a person's skip left of a rotten batch whose end nobody knew: all up to the good one that follows it."""
        skipped, place, base = self.state.skipped, self.next_offset, following.header.base_offset
        if (
            skipped is None
            or passed.header.base_offset < skipped.first_offset
            or skipped.last_offset != place - 1
        ):
            return None
        is_left = base > place and self._is_rot_behind(records, passed) and check_crc(records, *following)
        return (place, base - 1) if is_left else None

    def follows(self, header: BatchHeader, next_offset: int) -> bool:
        """Whether the batch may come next: only compaction leaves gaps."""
        if header.last_offset_delta < 0 or header.base_offset < next_offset:
            return False
        return header.base_offset == next_offset or self.is_compacted

    def jumped(self, header: BatchHeader) -> Offsets | None:
        """What a copy that goes on at this batch passes over; None where it begins there."""
        place = self.next_offset
        return (place, header.base_offset - 1) if header.base_offset > place and not self.begins else None

    def _lie(self, header: BatchHeader) -> Refusal | None:
        """Whether the source serves what by its own word it does not have: of a place that is chosen it is not believed."""
        if not 0 <= self.source_end_offset <= header.base_offset:
            return None
        reason = f"offsets {header.base_offset} to {header.last_offset} came of a log that ends at {self.source_end_offset}"
        return Refusal(offsets=(self.next_offset, UNKNOWN), reason=reason)

    def _departure(self, records: memoryview, place: Place, next_offset: int) -> Stop | Refusal:
        """What a batch is that came where `next_offset` was to come, and does not follow."""
        base, last = place.header.base_offset, place.header.last_offset
        if place.header.last_offset_delta < 0 or last < next_offset:
            offsets = rotten_offsets(records, place, self.source_end_offset)
            reason = f"offsets {base} to {last} came after {next_offset - 1}"
            return Refusal(offsets=offsets if base == next_offset else (next_offset, UNKNOWN), reason=reason)
        if base < next_offset:
            reason = f"the source's batch of offsets {base} to {last} does not begin where the copy ends"
            return Stop(kind=Kind.TRUNCATION, offsets=(base, next_offset - 1), reason=reason)
        reason = f"the source goes on at {base}, the copy ends at {next_offset}"
        return Stop(kind=Kind.GAP, offsets=(next_offset, base - 1), reason=reason)

    # -- a person's order

    def resumed(self) -> tuple[State, Offsets | None]:
        """The state of a stopped copy that goes on from its log's end, and which of the source's new messages that loses."""
        stopped, end = self.state.stopped, self.log_end_offset
        assert stopped is not None, "only what is stopped is resumed"
        if stopped.kind not in (Kind.RECREATION, Kind.TRUNCATION):
            return replace(self.state, stopped=None, resumed_at=end, passed_from=end), None
        lost = stopped.first_offset, stopped.last_offset
        going_on = replace(self.state, stopped=None, resumed_at=end, passed_from=lost[0], skipped=None)
        if stopped.kind is Kind.RECREATION:
            going_on = replace(going_on, source_id=NO_ID, epochs=(), begins_at=None)
        return going_on, lost
