"""The auditor of the offline cluster and its warehouses: ledgers with what feeds them, and where they are kept.

Owns the order in which a ledger is read, settled, judged and kept. A further warehouse has a ledger of its own in a folder below
that of the first one. Invariant: what goes wrong with a further warehouse is told and holds up no other one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from headrace.audit.archive import Archive
from headrace.audit.further import SPANS, Further, add_further, add_unread
from headrace.audit.judging.book import Book
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.judging.settling import forget_producers, settle
from headrace.audit.ledger import promises, state
from headrace.audit.ledger.ledger import ForeignLedgerError, Ledger
from headrace.audit.outcome import Outcome, Topic
from headrace.audit.period import ALWAYS, Period
from headrace.audit.topics import OfflineTopics
from headrace.audit.warehouse import Warehouse
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.structured_log import get_logger
from headrace.load.log_client import LogClient
from headrace.load.tables import open_present

FURTHER_FOLDER: Final = "warehouses"
"""Of the state: it has a folder for each further warehouse."""

Value = TypeVar("Value")

logger = get_logger(__name__)


class Auditor:
    """The ledger of one warehouse with what feeds it, and the auditors of further ones.

    Args:
        target: the further warehouse that this is the auditor of, or its place if it is the first one.
        directory: the folder of its ledger; None: everything is read again.
        late_ms: behind its own time by so much an event is late.

    Raises:
        WarehouseError: there is no such warehouse.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        target: Further,
        directory: Path | None,
        late_ms: int,
        further: Sequence[Further] = (),
    ) -> None:
        self.bootstrap = bootstrap
        self._topics = OfflineTopics(
            LogClient(bootstrap, client_id="headrace-audit"), target if target.name else None
        )
        catalog = open_present(target.location, dict(target.properties))
        self._warehouse = Warehouse(catalog)
        self._archive = Archive(catalog)
        self._directory = directory
        self._saver = state.Saver()
        self.ledger = self._archive.restored(state.load(directory, late_ms, target.name, target.scope))
        self.book = Book()
        self.records = self.files = 0
        """Read so far: messages of topics, data files of tables."""
        self.further = [FurtherAuditor(bootstrap, each, directory, late_ms) for each in further]

    def update(self, now_ms: int) -> int:
        """Read what is new; returns how much. A ledger of another cluster is begun anew."""
        try:
            number = self._read()
        except ForeignLedgerError as error:
            logger.warning("the ledger is built anew", reason=error)
            self.ledger = self._archive.restored(self.ledger.begun_anew())
            number = self._read()
        if not self.ledger.unread:
            self.ledger.rebuilt.clear()
        self.ledger.settle(now_ms)
        return number + sum(each.update(now_ms) for each in self.further)

    def observe_waiting(self, now_ms: int) -> None:
        """Observe the latencies of rows that wait for more of their times, which nobody is going to read."""
        self.ledger.latencies.join(now_ms, is_last=True)
        for each in self.further:
            each.observe_waiting(now_ms)

    def settle(self, now_ms: int, silent_after_seconds: float) -> None:
        """Make facts of what can be settled."""
        settle(self.ledger, self.book, now_ms, round(silent_after_seconds * 1000))
        for each in self.further:
            each.settle(now_ms, silent_after_seconds)

    def read_settled(self, period: Period) -> None:
        """Read what is settled of a period."""
        self._archive.read_into(self.ledger, period)
        for each in self.further:
            each.read_settled(period)

    def rows_of(self, topic: Topic, period: Period) -> int:
        """Return how many rows of events the topic's table has whose time is in a period."""
        return self._warehouse.rows_of(topic, period)

    def keep(self, directory: Path, *, with_settled: bool) -> None:
        """Save the ledger, then write what is settled to the tables, if that is due; what cannot be written is later."""
        for each in self.further:
            each.keep(with_settled=with_settled)
        is_due = with_settled and self.ledger.facts.begin_batch()
        self._saver.save(self.ledger, directory)
        if not is_due:
            return
        try:
            self._archive.write(self.ledger.facts, self.ledger.producers)
            forget_producers(self.ledger, [*self.ledger.producers])
            self._archive.merge(self.ledger.facts)
        except Exception as error:  # what a catalog raises is its own matter
            logger.warning("what is settled is written to the warehouse later", reason=error)

    def judged(self, now_ms: int, silent_after_seconds: float, period: Period = ALWAYS) -> Outcome:
        """Judge what is known without telling a watermark: nothing is written, so that anybody who may read may ask."""
        outcome = reconcile(
            self.ledger, now_ms, period=period, silent_after_ms=round(silent_after_seconds * 1000)
        )
        for each in self.further:
            each.add_judged(outcome, self.ledger, now_ms, silent_after_seconds)
        return outcome

    def outcome(self, now_ms: int, silent_after_seconds: float, period: Period = ALWAYS) -> Outcome:
        """Judge what is known; its watermarks are kept in the folder first. One that cannot be kept is not told."""
        silent_after_ms = round(silent_after_seconds * 1000)
        outcome = reconcile(
            self.ledger, now_ms, period=period, silent_after_ms=silent_after_ms, book=self.book
        )
        for each in self.further:
            each.add_told(outcome, self.ledger, now_ms, silent_after_seconds)
        if self._directory is None:
            return outcome
        told = dict(self.ledger.promised)
        self.ledger.promise(outcome.watermarks)
        try:
            self.ledger.promised = promises.keep(self._directory, self.ledger.promised)
        except OSError as error:
            logger.warning("no new watermark is told, since it cannot be kept", reason=error)
            self.ledger.promised = told
        outcome.watermarks = {key: promise.until_ms for key, promise in self.ledger.promised.items()}
        return outcome

    @property
    def lag(self) -> dict[str, int]:
        """By topic, the offsets that were there when it was read last, and are not read."""
        return self._topics.lag(self.ledger)

    @property
    def hindrance(self) -> str:
        """Why the last reading read nothing of the cluster although it ended."""
        if self._topics.reached:
            return ""
        if self.ledger.unread:
            return f"no leader answers of its {len(self.ledger.unread)} partitions"
        return "the offline cluster has no topic of counts, accounts or arrivals; brokers with a mirror and counters make them"

    def _read(self) -> int:
        records = self._topics.read_into(self.ledger)
        self.records += records
        files = self._warehouse.read_into(self.ledger)
        self.files += files
        return records + files


class FurtherAuditor:
    """The auditor of a further warehouse; opened when the warehouse is there, and tried again while it cannot be read."""

    def __init__(self, bootstrap: Bootstrap, target: Further, directory: Path | None, late_ms: int) -> None:
        self.name = target.name
        self._directory = None if directory is None else directory / FURTHER_FOLDER / target.name
        self._open = functools.partial(Auditor, bootstrap, target, self._directory, late_ms)
        self._auditor: Auditor | None = None
        self._settled_of: Period | None = None
        """The period of which what is settled is to be read when it is opened."""
        self._trouble = ""

    def update(self, now_ms: int) -> int:
        """Read what is new; returns how much: nothing where it cannot be read, which is told in the outcome."""
        return self._tried(lambda auditor: auditor.update(now_ms)) or 0

    def observe_waiting(self, now_ms: int) -> None:
        if self._auditor is not None:
            self._auditor.observe_waiting(now_ms)

    def settle(self, now_ms: int, silent_after_seconds: float) -> None:
        if self._auditor is not None:
            self._auditor.settle(now_ms, silent_after_seconds)

    def read_settled(self, period: Period) -> None:
        self._settled_of = period
        if self._auditor is not None:
            self._tried(lambda auditor: auditor.read_settled(period))

    def keep(self, *, with_settled: bool) -> None:
        """Save the ledger in its folder."""
        directory = self._directory
        if self._auditor is not None and directory is not None:
            self._tried(lambda auditor: auditor.keep(directory, with_settled=with_settled))

    def add_judged(self, outcome: Outcome, first: Ledger, now_ms: int, silent_after_seconds: float) -> None:
        """Add what is known to the outcome of the first ledger, without telling a watermark."""
        self._add(
            outcome, first, lambda auditor: auditor.judged(now_ms, silent_after_seconds, outcome.period)
        )

    def add_told(self, outcome: Outcome, first: Ledger, now_ms: int, silent_after_seconds: float) -> None:
        """The same with watermarks that are kept, then told."""
        self._add(
            outcome, first, lambda auditor: auditor.outcome(now_ms, silent_after_seconds, outcome.period)
        )

    def _add(self, outcome: Outcome, first: Ledger, judge: Callable[[Auditor], Outcome]) -> None:
        auditor = self._auditor
        if auditor is not None:
            ledger = auditor.ledger
            latencies = {span: ledger.latencies.histogram(span) for span in SPANS}
            add_further(outcome, self.name, judge(auditor), latencies)
            for item in outcome.findings if ledger.producers else ():
                if item.warehouse == self.name and item.stream.producer in ledger.producers:
                    first.producers.setdefault(item.stream.producer, ledger.producers[item.stream.producer])
        if self._trouble:
            add_unread(outcome, self.name, self._trouble)

    def _tried(self, do: Callable[[Auditor], Value]) -> Value | None:
        """Do something with the auditor, opened before if it is not; None, and why in `_trouble`, where that fails."""
        try:
            if self._auditor is None:
                opened = self._open()
                if self._settled_of is not None:
                    opened.read_settled(self._settled_of)
                self._auditor = opened
            done = do(self._auditor)
        except Exception as error:  # what a catalog raises is its own matter
            self._trouble = str(error).rstrip(".")
            logger.warning("a further warehouse cannot be read", warehouse=self.name, reason=error)
            return None
        self._trouble = ""
        return done
