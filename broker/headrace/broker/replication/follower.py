"""One partition as this broker follows it, in one leader epoch: what to ask its leader, and what to do about the answer.

    follower.question(now_ms)      → what to fetch; None while it waits, cuts its log or has failed
    follower.answered(…)           → Append, TruncateTo, StartAt, AskOffsets or nothing, to be performed
    follower.appended / truncated / not_done    what came of that

Invariants: batches come after what the log held when they were asked for, and of no later epoch than is followed; the log is
cut only where the leader shows that it parts from its own (KIP-101, KIP-279, KIP-595), or does not reach as far; the watermark
is never above the leader's. Another leader epoch is another follower. Knows neither sockets nor clocks; changes no log. After
kafka.server.AbstractFetcherThread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from headrace.broker.errors import (
    CorruptMessageError,
    ErrorCode,
    InvalidRecordError,
    KafkaError,
    StorageError,
    error_of,
)
from headrace.broker.log.results import EpochEndOffset
from headrace.broker.wire.batches import HEADER_SIZE, read_header
from headrace.broker.wire.client.replica_fetch import DivergingEpoch, FetchedPartition, FetchQuestion
from headrace.broker.wire.special_values import NO_EPOCH

UNKNOWN_OFFSET = -1
BACKOFF_MS_MIN, DOUBLINGS = 50, 16
AWAITING_CONTROLLER = "the leader is in a later epoch: waiting for the controller to tell of it"


class FollowedLog(Protocol):
    """The log of the partition, as far as decisions need it."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch of its batches; -1 when none is known."""
        ...

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset: ...


def pause_ms(failures: int, most_ms: int) -> int:
    """How long to wait after so many failures in a row before this one: twice as long each time."""
    return min(BACKOFF_MS_MIN << min(failures, DOUBLINGS), most_ms)


# -- commands


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Append `records`, if any, and take over the leader's watermark and log start; then call `appended` or `not_done`."""

    records: memoryview | None
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateTo:
    """End the log, and its epochs, at `offset`, which may be its end; then call `truncated` or `not_done`."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAt:
    """Empty the log, it begins at `offset`; then call `truncated` or `not_done`, and perform `then`, if there is one."""

    offset: int
    reason: str
    then: Append | None = None


@dataclass(frozen=True, slots=True)
class AskOffsets:
    """Ask the leader where its log ends and begins; then call `offsets_told`."""


Cut = TruncateTo | StartAt
Command = Append | Cut | AskOffsets


class Phase(StrEnum):
    """What a follower is at; the value is what people are told."""

    FETCHING = "fetching"
    TRUNCATING = "truncating"
    OUT_OF_RANGE = "out of range"
    FAILED = "failed"


class Follower:
    """See the module's text.

    `lag` is how many messages it is behind the leader's watermark, None before the first answer; `problem` what went wrong
    last, "" once it went well, `failures` how often in a row; `cut` what a follower that truncates wants done.
    """

    __slots__ = (
        "_backoff_ms_max",
        "_waits_until_ms",
        "asked",
        "cut",
        "failures",
        "lag",
        "leader_epoch",
        "log",
        "partition",
        "phase",
        "problem",
        "topic",
    )

    def __init__(
        self, topic: str, partition: int, log: FollowedLog, *, leader_epoch: int, backoff_ms: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.log = log
        self.leader_epoch = leader_epoch
        self.phase = Phase.FETCHING
        # What the request that is under way asks.
        self.asked: FetchQuestion | None = None
        self.cut: Cut | None = None
        self.lag: int | None = None
        self.problem = ""
        self.failures = 0
        self._backoff_ms_max = backoff_ms
        self._waits_until_ms: int | None = None
        if log.latest_epoch == NO_EPOCH and log.high_watermark < log.log_end_offset:
            # No epoch tells where this log parts from the leader's: only what was committed is surely the same.
            self._truncate(
                TruncateTo(offset=log.high_watermark, reason="its batches have no known leader epochs")
            )

    @property
    def is_in_sync(self) -> bool:
        """Whether it has all that the leader had committed when it last answered."""
        return self.lag == 0

    def waits_until_ms(self) -> int | None:
        """When it goes on after something went wrong; None when it does not wait."""
        return self._waits_until_ms

    # -- ask

    def question(self, now_ms: int) -> FetchQuestion | None:
        """What to fetch now; None when there is nothing to ask for."""
        if self.phase is not Phase.FETCHING or self._waits(now_ms):
            return None
        log = self.log
        return FetchQuestion(self.leader_epoch, log.log_end_offset, log.latest_epoch, log.log_start_offset)

    def wants_offsets(self, now_ms: int) -> bool:
        """Whether to ask the leader now where its log begins and ends."""
        return self.phase is Phase.OUT_OF_RANGE and not self._waits(now_ms)

    def wanted_cut(self, now_ms: int) -> Cut | None:
        """What is to be cut now, if anything is."""
        return None if self._waits(now_ms) else self.cut

    def _waits(self, now_ms: int) -> bool:
        if self._waits_until_ms is not None and now_ms >= self._waits_until_ms:
            self._waits_until_ms = None
        return self._waits_until_ms is not None

    # -- answers

    def answered(self, found: FetchedPartition, now_ms: int) -> Command | None:
        """What the leader says of the question that was `asked`; no command where nothing is to be done."""
        error_code, high_watermark, log_start_offset, diverging, records, _ = found
        asked = self.asked
        if asked is None or self.phase is not Phase.FETCHING or asked.offset != self.log.log_end_offset:
            return None
        if error_code:
            return self._refused(error_code, now_ms)
        if diverging is not None:
            return self._diverged(diverging, now_ms)
        append = Append(
            records=records or None,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
        )
        return (
            append if not records or asked.log_start_offset != asked.offset else self._begun(append, records)
        )

    def appended(self, high_watermark: int) -> None:
        """The batches of the answer are in the log; the leader's watermark was that."""
        self.lag = max(0, high_watermark - self.log.log_end_offset)
        self._went_well()

    def offsets_told(self, start_offset: int, end_offset: int, now_ms: int) -> Cut | None:
        """Where the leader's log begins and ends, for a follower that asked for an offset outside of it."""
        if self.phase is not Phase.OUT_OF_RANGE:
            return None
        if not 0 <= start_offset <= end_offset:
            self._wait(f"the leader's log would begin at {start_offset} and end at {end_offset}", now_ms)
            return None
        own_end = self.log.log_end_offset
        self.lag = None
        if end_offset < own_end:
            reason = f"the leader's log ends at {end_offset}"
            return self._truncate(TruncateTo(offset=end_offset, reason=reason))
        if start_offset > own_end:
            reason = f"the leader's log begins at {start_offset}, this one ended at {own_end}"
            return self._truncate(StartAt(offset=start_offset, reason=reason))
        self.phase = Phase.FETCHING
        return None

    def offsets_refused(self, error_code: int, now_ms: int) -> None:
        """The leader does not tell them."""
        self._refused(error_code, now_ms)

    def truncated(self) -> None:
        """The log was cut as wanted."""
        self.cut = None
        self.phase = Phase.FETCHING
        self._went_well()

    def not_done(self, error: KafkaError, now_ms: int) -> None:
        """What was to be appended was refused, or the log could not be cut; both are tried again where that may help."""
        if isinstance(error, CorruptMessageError | InvalidRecordError | StorageError):
            # A source may send better bytes; a full disk has room again, one that fails takes the partition along.
            self._wait(str(error), now_ms)
            if isinstance(self.cut, StartAt) and self.cut.then is not None:
                # What was to be appended then is fetched again.
                self.cut, self.phase = None, Phase.FETCHING
        else:
            self.failed(str(error))

    def delayed(self, reason: str, now_ms: int) -> None:
        """The leader cannot be reached, or answers nothing of use: ask again after a pause."""
        self._wait(reason, now_ms)

    def failed(self, reason: str) -> None:
        """Nothing more is asked before the controller tells of another leader epoch."""
        self.phase = Phase.FAILED
        self.problem = reason
        self.lag = None

    def _refused(self, error_code: int, now_ms: int) -> Command | None:
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.phase is Phase.FETCHING:
            self.phase = Phase.OUT_OF_RANGE
            return AskOffsets()
        if error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self.failed(AWAITING_CONTROLLER)
        else:
            self._wait(str(error_of(error_code)), now_ms)
        return None

    def _wait(self, reason: str, now_ms: int) -> None:
        """Pause, at first shortly: a leader may hear of its partition a little later."""
        self._waits_until_ms = now_ms + pause_ms(self.failures, self._backoff_ms_max)
        self.problem = reason
        self.failures += 1

    def _went_well(self) -> None:
        self.problem = ""
        self.failures = 0

    def _truncate(self, cut: Cut) -> Cut:
        self.phase = Phase.TRUNCATING
        self.cut = cut
        return cut

    def _begun(self, append: Append, records: memoryview) -> Append | StartAt:
        """The first batch of a log: the leader's may begin inside of it, where records were deleted."""
        if len(records) >= HEADER_SIZE:
            first, own_end = read_header(records), self.log.log_end_offset
            if 0 <= first.base_offset < own_end <= first.last_offset:
                self.phase = Phase.TRUNCATING
                reason = f"the leader's log begins inside the batch at {first.base_offset}"
                self.cut = StartAt(offset=first.base_offset, reason=reason, then=append)
                return self.cut
        return append

    def _diverged(self, diverging: DivergingEpoch, now_ms: int) -> Cut | None:
        if min(diverging) < UNKNOWN_OFFSET:
            self.failed(f"the leader's epoch {diverging.epoch} would end at {diverging.end_offset}")
            return None
        cut = self._cut_of(diverging)
        if cut.offset >= self.log.log_end_offset and not self._has_empty_epoch():
            self._wait(f"{cut.reason}, where this log does not part from it", now_ms)
            return None
        return self._truncate(cut)

    def _has_empty_epoch(self) -> bool:
        """Whether this broker led in the newest epoch, and appended nothing."""
        latest = self.log.latest_epoch
        return latest > 0 and self.log.epoch_end_offset(latest - 1).end_offset == self.log.log_end_offset

    def _cut_of(self, diverging: DivergingEpoch) -> TruncateTo:
        """Where the own log parts from the leader's, as far as this answer tells; the next one tells more."""
        epoch, end_offset = diverging
        log_end = self.log.log_end_offset
        own = self.log.epoch_end_offset(epoch)
        if end_offset == UNKNOWN_OFFSET:
            offset = log_end
        elif epoch == NO_EPOCH or own.leader_epoch == NO_EPOCH:
            offset = end_offset
        elif own.leader_epoch != epoch:
            # The leader's epoch is not known here: go back to the one before, and ask with that.
            offset = own.end_offset
        else:
            offset = min(own.end_offset, end_offset)
        return TruncateTo(
            offset=min(offset, log_end), reason=f"the leader's epoch {epoch} ends at {end_offset}"
        )
