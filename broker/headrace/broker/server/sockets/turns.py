"""Whose turn it is: connections that have something to do are served one after the other, the least served first.

A turn is short, and who was served for long waits until the others had as much: start-time fair queueing (Goyal, Vin
and Cheng, SIGCOMM 1996) with the time that turns took as the cost. So a client that asks now and then waits for about
one turn, however many others keep the broker busy. Readiness comes from an epoll of its own, edge-triggered: a
connection that has to wait for its turn costs nothing meanwhile. Invariants: a connection is in the queue once at most;
after `SLICE_S` the event loop has its turn, too. What takers join during a slice is done together at its end, and they have
no other turn before that; its time is shared out among them. Must not know what a connection does in its turn.
"""

from __future__ import annotations

import select
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from headrace.broker.waiting.round import Round

TURN_S = 0.0005
SLICE_S = 0.001
# Who connects anew for each request must not overtake those who stay.
NEWCOMER_S = 0.001
EVENTS_COUNT_MAX = 256
# Fewer takers have less to gain by doing things together than it costs.
ROUND_SIZE_MIN = 4
# A look at all sockets costs as much as a small turn.
HEAR_S = 0.00005
READABLE = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
READABLE_OR_WRITABLE = READABLE | select.EPOLLOUT


class Taker(Protocol):
    """Who takes turns; the two attributes belong to `Turns`."""

    is_due: bool
    served_until: float

    def heard(self, events: int) -> None:
        """Take note of the socket's new epoll events; a turn follows."""
        ...

    def turn(self, end: float) -> bool:
        """Work until about `end`; whether there is more to do at once."""
        ...

    def settled(self, share_s: float) -> bool:
        """What it joined in its turn is done, its share of which took so long; whether there is more to do at once."""
        ...


class Turns:
    """The queue of those who have something to do."""

    def __init__(
        self, loop: AbstractEventLoop, together: Round, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.now = now
        self._round = together
        # Whose turn had them join the round.
        self._joined: list[Taker] = []
        self._loop = loop
        self._epoll = select.epoll()
        self._takers: dict[int, Taker] = {}
        # (the virtual time at which its turn starts, the order of arrival, who).
        self._due: list[tuple[float, int, Taker]] = []
        self._arrivals = 0
        self._virtual_time = 0.0
        self._is_scheduled = False
        loop.add_reader(self._epoll.fileno(), self._run)

    def close(self) -> None:
        """No turns any more; the takers have left."""
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def join(self, fd: int, taker: Taker) -> None:
        """From now on `taker` hears of what arrives at its socket."""
        taker.is_due = False
        taker.served_until = self._virtual_time + NEWCOMER_S
        self._takers[fd] = taker
        self._epoll.register(fd, READABLE)

    def leave(self, fd: int) -> None:
        """Before the socket is closed; a turn that is due is taken nevertheless."""
        del self._takers[fd]
        self._epoll.unregister(fd)

    def watch(self, fd: int, *, writable: bool) -> None:
        """Whether the taker hears when its socket takes more; if that is so already, it hears it at once."""
        self._epoll.modify(fd, READABLE_OR_WRITABLE if writable else READABLE)

    def want(self, taker: Taker) -> None:
        """The taker has something to do of which its socket knows nothing."""
        self._queue(taker)
        self._schedule()

    def later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back in so many seconds; until then it costs nobody anything."""
        return self._loop.call_later(delay_s, callback)

    def _queue(self, taker: Taker) -> None:
        if not taker.is_due:
            taker.is_due = True
            self._arrivals += 1
            start = max(self._virtual_time, taker.served_until)
            heappush(self._due, (start, self._arrivals, taker))

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        if not self._epoll.closed:
            self._run()

    def _run(self) -> None:
        """Give turns for about `SLICE_S`."""
        due, together, joined = self._due, self._round, self._joined
        is_scheduled, self._is_scheduled = self._is_scheduled, True
        next_joined = inf
        try:
            began = heard = self.now()
            end = began + SLICE_S
            self._hear()
            while due:
                start, _, taker = heappop(due)
                taker.is_due = False
                self._virtual_time = start
                together.is_open = len(due) >= ROUND_SIZE_MIN or bool(joined)
                joins = together.joins
                more = taker.turn(began + TURN_S)
                ended = self.now()
                taker.served_until = start + ended - began
                if together.joins != joins:
                    taker.is_due = True
                    joined.append(taker)
                    if more:
                        next_joined = min(next_joined, taker.served_until)
                elif more:
                    self._queue(taker)
                began = ended
                if not due or ended - heard >= HEAR_S:
                    heard = ended
                    self._hear()
                if not due or ended >= end or together.is_full:
                    break
                if due[0][0] > next_joined:
                    # Who joined, and has more to do, would be next.
                    break
            if joined:
                self._end_round()
        finally:
            self._is_scheduled = is_scheduled
            if due:
                self._schedule()

    def _end_round(self) -> None:
        joined, self._joined = self._joined, []
        began = self.now()
        self._round.end()
        ended = self.now()
        share_s = (ended - began) / len(joined)
        for taker in joined:
            began = ended
            taker.is_due = False
            more = taker.settled(share_s)
            ended = self.now()
            taker.served_until += share_s + ended - began
            if more:
                self._queue(taker)

    def _hear(self) -> None:
        takers = self._takers
        for fd, events in self._epoll.poll(0, EVENTS_COUNT_MAX):
            taker = takers.get(fd)
            if taker is not None:
                taker.heard(events)
                self._queue(taker)
