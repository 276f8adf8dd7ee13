"""Up to when everything is whole: what each producer's accounts promise, and the watermark of each topic and of all.

Owns when a producer holds the watermark back, and which windows nobody can vouch for. Rules:
- a producer that has not closed holds it at the end of the last window that it promised; one of which no account has
  arrived, at its first event;
- one that is silent for the stated time holds it no longer: it goes on, and the producer's last windows are unknown. The
  silence is measured by the clock of the counter in the producer's own datacenter, up to which accounts are read, so that
  a mirror or an auditor that is behind takes nobody for silent;
- what is lost or on its way holds it at its window, but for what came after the watermark of that window, and for losses
  that a person has accepted;
- nobody's promise counts beyond the time up to which accounts are read: a producer whose clock is years ahead knows no future.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from headrace.audit.acceptances import Acceptances
from headrace.audit.judging.evidence import Evidence
from headrace.audit.judging.judge import Judged
from headrace.audit.ledger.accounts import CLOCK_SKEW_MS
from headrace.audit.ledger.facts import TopicFacts
from headrace.audit.outcome import OVERALL, Loss, Topic
from headrace.audit.period import BEGIN_MS, END_MS, Period
from headrace.audit.windows import Depth, depth, excess, once, runs_in, total, within

SILENT_AFTER_MS: Final = 300_000
"""Longer than a client tries to deliver an account (`delivery.timeout.ms`, two minutes)."""

LOSSES_MAX: Final = 1_000
"""Lost runs of a stream and hop that are accepted one by one; further ones hold the watermark whatever is accepted."""


class Standing(NamedTuple):
    """How far a producer's accounts of a topic reach."""

    bound_ms: int | None
    """What the watermark may not pass; None: nothing."""
    unknown: Period | None
    """The windows that nobody can vouch for."""
    reason: str
    lasting: str = ""
    """The same as a reason that stays true."""


WHOLE: Final = Standing(None, None, "")


def standing_of(evidence: Evidence, heard_until_ms: int, now_ms: int, silent_after_ms: int) -> Standing:
    """Say how far a producer's accounts reach; `heard_until_ms`: all accounts up to this time are read."""
    if evidence.stream.is_again:
        return WHOLE
    accounts = evidence.accounts
    since_ms = accounts.heard_at or evidence.first_seen
    is_silent = heard_until_ms - since_ms >= silent_after_ms
    if not accounts.heard_at:
        windows = evidence.span(evidence.beyond_accounts)
        bound_ms = None if is_silent else windows.since_ms
        return Standing(bound_ms, windows, "no account of this producer has arrived, only its events")
    if accounts.is_closed:
        return _closed(evidence, is_silent)
    ahead = evidence.beyond_accounts
    beyond = f", {ahead.count} of its events are in no account" if ahead.count else ""
    silent_s = max(0, now_ms - accounts.heard_at) // 1000
    if not is_silent:
        reason = f"the producer has not closed, its last account is {silent_s} s old{beyond}"
        return Standing(accounts.whole_until, Period(accounts.whole_until, END_MS), reason)
    last_ms = max(accounts.heard_at, evidence.span(ahead).until_ms if ahead.count else BEGIN_MS)
    reason = f"the producer went silent {silent_s} s ago without closing{beyond}"
    windows = Period(accounts.whole_until, last_ms + accounts.window_size_ms)
    return Standing(None, windows, reason, f"the producer went silent without closing{beyond}")


def is_whole(evidence: Evidence) -> bool:
    """Whether a producer has closed, and all that it published is accounted for: from then on no time passes for it."""
    return evidence.accounts.is_closed and _closed(evidence, is_silent=False) is WHOLE


def _closed(evidence: Evidence, is_silent: bool) -> Standing:
    accounts = evidence.accounts
    accounted = once(total((evidence.expected, accounts.undelivered)))
    missing = accounts.next_sequence - once(total((accounted, accounts.settled))).count
    ahead = evidence.beyond_accounts
    if missing > 0:
        known = once(total((accounted, accounts.settled)))
        first = next((run.last + 1 for run in known.runs() if run.first == 0), 0)
        since_ms = evidence.table.latest(first - 1)
        windows = Period(since_ms, max(since_ms + 1, accounts.complete_until))
        reason = f"{missing} sequences are in none of the producer's accounts"
        return Standing(None if is_silent else since_ms, windows, reason)
    if ahead.count:
        return Standing(None, evidence.span(ahead), f"{ahead.count} of its events are in no account")
    return WHOLE


class Held(NamedTuple):
    """Where a stream holds the watermark by what is not in all tiers, but for what is overdue there."""

    since_ms: int
    """The first window of which something is on its way, or lost beyond `losses`; `END_MS`: none."""
    losses: tuple[Loss, ...]


def held_by(evidence: Evidence, judged: Judged) -> Held:
    """Return what is lost or on its way."""
    losses: list[Loss] = []
    others = [_not_overdue(evidence, found) for found in judged.under_way]
    for hop, lost in judged.lost.items():
        found = _not_overdue(evidence, lost)
        others.append(depth(runs_in(found)[LOSSES_MAX:]))
        for run in found.runs()[:LOSSES_MAX]:
            since_ms = evidence.span(depth(np.array([run[:2]], dtype=np.int64))).since_ms
            producer = evidence.stream.producer_name
            losses.append(Loss(hop, producer, run.first, run.last, run.total, since_ms))
    rest = total(others)
    return Held(evidence.span(rest).since_ms if rest.count else END_MS, tuple(losses))


def _not_overdue(evidence: Evidence, found: Depth) -> Depth:
    return excess(found, within(found, evidence.overdue))


@dataclass(slots=True)
class _Topic:
    bounds: list[int] = field(default_factory=list)
    latest: int = 0
    is_counted: bool = True


@dataclass(slots=True)
class Watermarks:
    """Those of all topics, from their streams one after the other."""

    accepted: Acceptances = field(default_factory=Acceptances)
    topics: dict[tuple[str, str], _Topic] = field(default_factory=dict)

    def add(self, evidence: Evidence, standing: Standing, held: Held) -> None:
        """Take a stream, with what of it is lost or on its way."""
        topic = self.topics.setdefault(evidence.topic, _Topic())
        topic.latest = max(topic.latest, evidence.accounts.complete_until)
        topic.is_counted &= not evidence.uncounted
        if standing.bound_ms is not None:
            topic.bounds.append(standing.bound_ms)
        self._hold(evidence.topic, held.since_ms, held.losses)

    def add_facts(self, key: tuple[str, str], facts: TopicFacts) -> None:
        """Take what is settled of a topic."""
        topic = self.topics.setdefault(key, _Topic())
        topic.latest = max(topic.latest, facts.complete_until)
        self._hold(key, facts.unresolved_ms, facts.losses)

    def _hold(self, key: Topic, since_ms: int, losses: Iterable[Loss]) -> None:
        """Hold a topic at a window, and at the first loss that nobody has accepted."""
        by_window = sorted(losses, key=lambda loss: loss.since_ms)
        open_loss = next((loss for loss in by_window if not self.accepted.covers(key, loss)), None)
        since_ms = min(since_ms, END_MS if open_loss is None else open_loss.since_ms)
        if since_ms < END_MS:
            self.topics[key].bounds.append(since_ms)

    def found(self, heard_until: Mapping[str, int], now_ms: int) -> dict[tuple[str, str], int]:
        """Return the watermark of each topic and of all that are counted; nothing where there is none yet.

        `heard_until`: up to when the accounts of each datacenter are read.
        """
        bounds: list[int] = []
        latest: list[int] = []
        found: dict[tuple[str, str], int] = {}
        is_any_counted = any(topic.is_counted for topic in self.topics.values())
        for key, topic in self.topics.items():
            limit_ms = heard_until.get(key[0], now_ms) + CLOCK_SKEW_MS
            found[key] = min(limit_ms, min(topic.bounds, default=topic.latest))
            if topic.is_counted or not is_any_counted:
                bounds += [found[key]] if topic.bounds else []
                latest.append(min(limit_ms, topic.latest))
        found[OVERALL] = min(bounds, default=max(latest, default=0))
        return {key: until_ms for key, until_ms in found.items() if until_ms > 0}
