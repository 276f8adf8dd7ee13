"""When this broker's copies got their messages: what goes to the topic `headrace.arrivals` (see `arrivals`).

An arrival is noted at its append and written once it is committed: what no follower has may still be copied again, by the
next leader. One write is under way at a time, a tenth of a second apart (see `service`), whatever the number of fetches.
Whoever takes a copy over records, as an estimate, what its predecessor did not come to write. Bounded: of a copy that waits
longer the arrivals are merged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.broker.structured_log import get_logger
from headrace.mirror.memory import arrivals
from headrace.mirror.memory.arrivals import Arrival
from headrace.mirror.memory.journal import Pair, Topic
from headrace.mirror.memory.lead import Lead

logger = get_logger(__name__)
UNCOMMITTED_MAX = 1_000
"""Arrivals of one copy that are not committed yet; then the newest two become one."""
SUMMARY_INTERVAL_MS = 600_000


class _Found(NamedTuple):
    """What a copy held when it was taken over, and when its log changed last."""

    log_start_offset: int
    log_end_offset: int
    changed_ms: int


class ArrivalLog:
    """Shared by all copiers of this broker."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._leads: dict[bytes, Lead] = {}
        self._waiting: dict[bytes, deque[Arrival]] = {}
        self._covered: dict[bytes, int] = {}
        self._unrecorded: dict[bytes, _Found] = {}
        self._since_summary = 0
        self._summary_ms: int | None = None
        self._is_writing = False

    def take_over(self, lead: Lead, changed_ms: int) -> None:
        """This broker copies here from now on; its log changed last at `changed_ms`."""
        log = lead.partition.log
        self._leads[lead.place] = lead
        self._waiting[lead.place] = deque()
        if log.log_start_offset < log.log_end_offset:
            self._unrecorded[lead.place] = _Found(log.log_start_offset, log.log_end_offset, changed_ms)

    def let_go(self, lead: Lead) -> None:
        """Another one records what is not written yet."""
        if self._leads.get(lead.place) == lead:
            for known in (self._leads, self._waiting, self._covered, self._unrecorded):
                known.pop(lead.place, None)

    def arrived(self, lead: Lead, arrival: Arrival) -> None:
        """Note an append."""
        if self._leads.get(lead.place) != lead:
            return
        waiting = self._waiting[lead.place]
        if len(waiting) >= UNCOMMITTED_MAX:
            arrival = arrival._replace(first_offset=waiting.pop().first_offset)
        waiting.append(arrival)

    @property
    def unrecorded(self) -> set[bytes]:
        """The places of copies whose recorded end has to be looked up (see `complete`)."""
        return set(self._unrecorded)

    def complete(self, ends: Mapping[bytes, int], places: Iterable[bytes]) -> None:
        """The topic records these places up to `ends`, or has nothing of them: the rest, when it was taken over, is estimated."""
        for place in places:
            found = self._unrecorded.pop(place, None)
            if found is None:
                continue
            self._covered[place] = found.log_end_offset
            missing = arrivals.missing(ends.get(place), *found)
            if missing is not None:
                logger.warning("arrival times are estimated", partition=place.decode(), **missing._asdict())
                self._waiting[place].appendleft(missing)

    @property
    def is_waiting(self) -> bool:
        """Whether anything is noted and not on its way."""
        return any(self._waiting.values())

    def flush(self, now_ms: int) -> None:
        """Write the arrivals that are committed, and from time to time how far every copy is recorded."""
        if self._is_writing:
            return
        pairs: list[Pair] = []
        for place, waiting in self._waiting.items():
            if waiting and place not in self._unrecorded:
                committed = self._leads[place].partition.high_watermark
                while waiting and waiting[0].last_offset < committed:
                    arrival = waiting.popleft()
                    pairs.append((place, arrivals.encode(arrival)))
                    self._covered[place] = arrival.last_offset + 1
        self._since_summary += len(pairs)
        if self._is_summary_due(now_ms):
            self._since_summary, self._summary_ms = 0, now_ms
            pairs += [
                (place, arrivals.encode(Arrival(end, end - 1, now_ms)))
                for place, end in self._covered.items()
            ]
        if pairs:
            self._is_writing = True
            self._topic.append(pairs, self._written)

    def _is_summary_due(self, now_ms: int) -> bool:
        if self._summary_ms is None:
            self._summary_ms = now_ms
        is_time = not 0 <= now_ms - self._summary_ms < SUMMARY_INTERVAL_MS
        return self._since_summary >= arrivals.SUMMARY_EVERY or is_time

    def _written(self, _: int) -> None:
        self._is_writing = False
