"""What the ledger's tiers mean: losses, copies, what is under way, and who is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from headrace.audit.judging.reconcile import reconcile
from headrace.audit.judging.watermark import SILENT_AFTER_MS
from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.accounts import CLOCK_SKEW_MS
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Outcome
from headrace.audit.parcels import PlacedTallies, copies_of
from headrace.audit.records import Barrier, Counted, CounterTier, MirrorFinding, Standstill
from headrace.audit.report import as_json, sentence
from headrace.audit.windows import ProducerName, Stream, Tally, tally
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.envelope import Header
from headrace.events.monitoring import Account, MonitoringEvent, WindowLedger

DATACENTER, TOPIC, PRODUCER = "dc-east", "pageviews", "p"
NOW = 1_700_000_000_000
PLACE = SourcePartition(DATACENTER, TOPIC, 0)


@dataclass
class Script:
    """A ledger that is told in words: one producer, one partition, event n at offset n."""

    ledger: Ledger = field(default_factory=Ledger)
    topic: str = TOPIC
    is_compacted: bool = False
    accounts: int = 0
    files: int = 0

    def account(
        self, *sequences: int, closed: bool = True, failed: tuple[int, ...] = (), at_ms: int = NOW
    ) -> None:
        """The producer says what was acknowledged, in one window."""
        book = WindowLedger(PRODUCER, window_size_ms=1000, now_ms=at_ms)
        # Sequences follow one another; those of an account before this one are only handed out.
        book._next_sequence = min((*sequences, *failed), default=0)
        for sequence in sorted((*sequences, *failed)):
            book.on_sent(sequence, at_ms)
            if sequence in failed:
                book.on_failed(sequence, at_ms, outcome="unknown", reason="timed out")
            else:
                book.on_acknowledged(sequence, at_ms, at_ms + 5)
        for account in book.closed(at_ms + 1000) if closed else book.finished(at_ms + 1000):
            self.tell(account)

    def tell(self, account: Account) -> None:
        header = Header(NOW, "web-1", "shop", PRODUCER, self.accounts)
        event = MonitoringEvent(header=header, topic=self.topic, datacenter=DATACENTER, account=account)
        source = TopicPartition(f"{DATACENTER}.headrace.monitoring", 0)
        self.ledger.on_account(source, self.accounts, event)
        self.accounts += 1
        self.ledger.read[source] = self.accounts

    def count(
        self,
        tier: CounterTier,
        first: int,
        following: int,
        *sequences: int,
        at_ms: int = NOW,
        removed: int = 0,
    ) -> None:
        """A counter saw these events of a producer on web-1 at these offsets."""
        name = self.topic if tier == "live" else f"{DATACENTER}.{self.topic}"
        self.ledger.on_count(
            Counted(
                tier=tier,
                datacenter=DATACENTER if tier == "live" else "offline",
                partition=TopicPartition(name, 0),
                first=first,
                next=following,
                tallies=tallies(*sequences),
                at_ms=at_ms,
                removed=removed,
                is_compacted=self.is_compacted,
                producers={PRODUCER: ProducerName("web-1", "shop")} if sequences else {},
            )
        )

    def barrier(self, counted: int, *, at_ms: int = NOW) -> None:
        self.ledger.on_count(
            Barrier(
                tier="live",
                datacenter=DATACENTER,
                counted={TopicPartition(self.topic, 0): counted},
                monitoring={0: self.accounts},
                whole=frozenset({self.topic}),
                at_ms=at_ms,
            )
        )

    def rows(self, first: int, following: int, *sequences: int) -> None:
        self.files += 1
        self.ledger.on_loaded(PLACE, first, following, NOW)
        self.ledger.on_file(TOPIC, f"file-{self.files}", [(PLACE, first, following, tallies(*sequences))])

    def outcome(self, *, now_ms: int = NOW) -> Outcome:
        self.ledger.settle(now_ms)
        return reconcile(self.ledger, now_ms)

    def report(self) -> dict[str, Any]:
        return as_json(self.outcome(), self.ledger, NOW)


def tallies(*sequences: int) -> tuple[Tally, ...]:
    ordered = np.array(sorted(sequences), dtype=np.int64)
    same = np.full(len(ordered), NOW, dtype=np.int64)
    return tuple(tally([PRODUCER], np.zeros(len(ordered), dtype=np.intp), same, ordered, 1000))


@pytest.fixture
def script() -> Script:
    return Script()


def everything(script: Script, *sequences: int) -> None:
    """All tiers hold these sequences, at offsets from 0."""
    end = len(sequences)
    script.account(*sequences)
    script.count("live", 0, end, *sequences)
    script.barrier(end)
    script.count("offline", 0, end, *sequences)
    script.rows(0, end, *sequences)


def found(outcome: Outcome) -> list[tuple[str, str, int, int, int]]:
    return [
        (item.kind, item.hop, item.first_sequence, item.last_sequence, item.count)
        for item in outcome.findings
    ]


def reasons(outcome: Outcome) -> str:
    return "; ".join(item.reason for item in outcome.incomplete)


def test_nothing_known_is_not_complete(script: Script) -> None:
    outcome = script.outcome()
    assert (outcome.verdict, outcome.complete_until) == ("incomplete", None)
    report = as_json(outcome, script.ledger, NOW)
    assert report["complete_until"] is None
    assert set(report["latency_seconds"].values()) == {None}


def test_all_tiers_alike_is_complete(script: Script) -> None:
    everything(script, 0, 1, 2)
    outcome = script.outcome()
    assert (outcome.verdict, outcome.findings, outcome.incomplete) == ("complete", [], [])
    assert outcome.complete_until == NOW + 1000
    assert as_json(outcome, script.ledger, NOW)["complete_until"] == "2023-11-14T22:13:21Z"


def test_an_acknowledged_event_is_lost_only_once_a_barrier_is_past_its_account(script: Script) -> None:
    script.account(0, 1, 2)
    script.count("live", 0, 2, 0, 2)
    assert found(script.outcome()) == []
    script.barrier(3)
    assert found(script.outcome()) == []
    script.count("live", 2, 3)
    assert found(script.outcome()) == [("loss", "producer_to_live", 1, 1, 1)]


def test_an_account_behind_the_barrier_waits_for_the_next_one(script: Script) -> None:
    script.barrier(0)
    script.account(0)
    assert script.outcome().verdict == "incomplete"
    script.barrier(0)
    assert script.outcome().verdict == "loss"


def test_what_the_producer_does_not_vouch_for_may_be_there_or_not(script: Script) -> None:
    script.account(0, 3, failed=(1, 2))
    for tier in ("live", "offline"):
        script.count(tier, 0, 3, 0, 1, 3)
    script.barrier(3)
    script.rows(0, 3, 0, 1, 3)
    assert script.outcome().verdict == "complete"


def test_what_nobody_vouches_for_and_nobody_has_is_told_of_and_is_no_fault(script: Script) -> None:
    script.account(0, 1, failed=(2, 3, 4))
    script.account(0, 1, failed=(2, 3, 4))
    script.count("live", 0, 3, 0, 1, 3)
    script.count("offline", 0, 3, 0, 1, 3)
    script.rows(0, 3, 0, 1, 3)
    script.barrier(3)
    report = script.report()
    assert (report["verdict"], report["totals"]["unacknowledged"]) == ("complete", 2)
    assert report["topics"][0]["unacknowledged"] == 2
    assert sentence(report).endswith(" 2 events were not acknowledged to their producers, and are nowhere.")


def test_a_loss_and_a_copy_of_one_count_do_not_cancel_out(script: Script) -> None:
    script.account(0, 1, 2)
    script.count("live", 0, 3, 0, 1, 2)
    script.barrier(3)
    script.count("offline", 0, 3, 0, 2, 2)
    assert found(script.outcome()) == [
        ("loss", "live_to_offline", 1, 1, 1),
        ("duplicate", "live_to_offline", 2, 2, 1),
    ]


def test_a_copy_that_only_the_offline_log_has_is_named_once_the_live_log_is_known_to_end_before(
    script: Script,
) -> None:
    everything(script, 0, 1)
    script.count("offline", 2, 3, 1, at_ms=NOW)
    outcome = script.outcome()
    assert (outcome.verdict, found(outcome)) == ("incomplete", [])
    assert "not in live yet" in reasons(outcome)
    script.barrier(2, at_ms=NOW + CLOCK_SKEW_MS + 1)
    assert found(script.outcome()) == [("duplicate", "live_to_offline", 1, 1, 1)]


def test_rows_beyond_what_is_counted_offline_are_no_copies_yet(script: Script) -> None:
    script.account(0, 1)
    script.count("live", 0, 2, 0, 1)
    script.barrier(2)
    script.rows(0, 2, 0, 1)
    assert script.outcome().verdict == "incomplete"
    script.count("offline", 0, 2, 0, 1)
    assert script.outcome().verdict == "complete"


def test_a_table_whose_files_are_gone_is_counted_anew(script: Script) -> None:
    everything(script, 0, 1, 2)
    assert script.outcome().verdict == "complete"
    script.ledger.forget_warehouse()
    script.rows(0, 3, 0, 2)
    assert found(script.outcome()) == [("loss", "offline_to_warehouse", 1, 1, 1)]


def test_a_file_that_could_not_be_read_is_read_again(script: Script) -> None:
    everything(script, 0, 1)

    def unreadable() -> Iterator[PlacedTallies]:
        yield from ()
        raise OSError("the file was moved")

    with pytest.raises(OSError, match="moved"):
        script.ledger.on_file(TOPIC, "file-2", unreadable())
    script.rows(2, 3, 2)
    assert script.ledger.files[TOPIC] == {"file-1", "file-2"}
    assert script.outcome().topics[DATACENTER, TOPIC].warehouse == 3


def test_loss_comes_before_duplicates_and_holds_the_watermark(script: Script) -> None:
    script.account(0, 1)
    script.count("live", 0, 2, 1, 1)
    script.barrier(2)
    outcome = script.outcome()
    assert outcome.verdict == "loss"
    assert outcome.complete_until == NOW - NOW % 1000


@pytest.mark.parametrize(
    ("silent_ms", "reason"), [(3_000, "has not closed"), (SILENT_AFTER_MS, "went silent")]
)
def test_a_producer_that_does_not_close_is_named_however_long_it_takes(
    script: Script, silent_ms: int, reason: str
) -> None:
    script.account(0, 1, closed=False)
    for tier in ("live", "offline"):
        script.count(tier, 0, 3, 0, 1, 2)
    script.barrier(3)
    script.rows(0, 3, 0, 1, 2)
    script.barrier(3, at_ms=NOW + silent_ms)
    outcome = script.outcome(now_ms=NOW + silent_ms)
    assert (outcome.verdict, outcome.findings) == ("incomplete", [])
    assert [(item.producer, reason in item.reason) for item in outcome.incomplete] == [(PRODUCER, True)]
    assert "1 of its events are in no account" in reasons(outcome)


def test_a_closed_producer_whose_accounts_are_not_all_there_is_incomplete(script: Script) -> None:
    book = WindowLedger(PRODUCER, window_size_ms=1000, now_ms=NOW)
    book.on_sent(0, NOW)
    book.on_acknowledged(0, NOW, NOW)
    *_, closing = book.closed(NOW)
    script.tell(closing)
    assert "1 sequences are in none of the producer's accounts" in reasons(script.outcome())


def test_an_account_that_contradicts_itself_is_no_evidence(script: Script) -> None:
    book = WindowLedger(PRODUCER, window_size_ms=1000, now_ms=NOW)
    book.on_sent(0, NOW)
    book.on_acknowledged(0, NOW, NOW)
    account, _ = book.closed(NOW)
    script.tell(replace(account, fingerprint=account.fingerprint ^ 1))
    outcome = script.outcome()
    assert outcome.topics == {}
    assert "does not have the fingerprint" in reasons(outcome)


def test_events_without_any_account_are_incomplete(script: Script) -> None:
    script.count("live", 0, 1, 0)
    assert "no account of this producer" in reasons(script.outcome())


def test_offsets_that_were_never_counted_excuse_what_is_missing(script: Script) -> None:
    script.account(0, 1)
    script.ledger.on_count(
        Standstill(
            tier="live",
            datacenter=DATACENTER,
            partition=TopicPartition(TOPIC, 0),
            first=0,
            next=1,
            reason="offsets 0 to 0 were deleted before they were counted",
        )
    )
    script.count("live", 1, 2, 1)
    script.barrier(2)
    script.count("offline", 0, 2, 0, 1)
    script.rows(0, 2, 0, 1)
    outcome = script.outcome()
    assert (outcome.verdict, outcome.findings) == ("incomplete", [])
    assert "deleted before they were counted" in reasons(outcome)


LATER = NOW + 60_000


def test_a_loss_behind_the_offsets_that_a_late_counter_never_saw_is_a_loss(script: Script) -> None:
    script.account(0, 1, closed=False)
    script.count("live", 10, 11, 1)
    script.account(2, 3, 4, at_ms=LATER)
    script.count("live", 11, 13, 2, 4)
    script.barrier(13)
    for first, following, sequences in ((0, 11, (0, 1)), (11, 13, (2, 4))):
        script.count("offline", first, following, *sequences)
        script.rows(first, following, *sequences)
    outcome = script.outcome()
    assert (outcome.verdict, found(outcome)) == ("loss", [("loss", "producer_to_live", 3, 3, 1)])
    assert "1 events from producer to live may lie in offsets that were never counted" in reasons(outcome)


def test_a_producer_that_began_after_the_uncounted_offsets_has_nothing_in_them(script: Script) -> None:
    script.count("live", 10, 11)
    script.tell(WindowLedger(PRODUCER, window_size_ms=1000, now_ms=LATER).opened(LATER))
    script.account(0, 1)
    script.count("live", 11, 12, 1)
    script.barrier(12)
    assert found(script.outcome())[0] == ("loss", "producer_to_live", 0, 0, 1)


@pytest.mark.parametrize("hole", ["begun late", "skipped"])
def test_a_loss_behind_the_offsets_that_were_never_counted_offline_is_a_loss(
    script: Script, hole: str
) -> None:
    script.account(0, 1, 2)
    for offset in range(3):
        script.count("live", offset, offset + 1, offset)
    script.barrier(3)
    if hole == "skipped":
        script.ledger.on_count(deleted("offline", 0, 1))
    script.count("offline", 1, 3, 1)
    outcome = script.outcome()
    assert found(outcome) == [("loss", "live_to_offline", 2, 2, 1)]
    assert "1 events from live to offline may lie in offsets that were never counted" in reasons(outcome)


def test_what_lies_before_the_start_of_a_copy_is_not_known_and_not_lost(script: Script) -> None:
    script.account(0, 1, 2)
    for offset in range(3):
        script.count("live", offset, offset + 1, offset)
    script.barrier(3)
    # The mirror was told to begin at 2: the counter finds that the copy's log does.
    script.ledger.on_count(deleted("offline", 0, 2))
    script.count("offline", 2, 3, 2)
    outcome = script.outcome()
    assert (outcome.verdict, found(outcome)) == ("incomplete", [])
    assert "2 events from live to offline may lie in offsets that were never counted" in reasons(outcome)


def test_a_copy_behind_the_offsets_that_were_never_counted_live_is_a_copy(script: Script) -> None:
    script.account(0, 1)
    script.count("live", 1, 3, 1)
    script.barrier(3)
    for offset, sequence in enumerate((0, 1, 1)):
        script.count("offline", offset, offset + 1, sequence)
        script.rows(offset, offset + 1, sequence)
    outcome = script.outcome()
    assert found(outcome) == [("duplicate", "live_to_offline", 1, 1, 1)]


def test_what_was_settled_before_offsets_were_skipped_stays_lost(script: Script) -> None:
    script.account(0, 1, closed=False)
    script.count("live", 0, 2, 1)
    script.barrier(2)
    assert found(script.outcome()) == [("loss", "producer_to_live", 0, 0, 1)]
    script.ledger.on_count(deleted("live", 2, 9))
    script.count("live", 9, 10, 2, at_ms=LATER)
    script.barrier(10)
    assert found(script.outcome()) == [("loss", "producer_to_live", 0, 0, 1)]


def deleted(tier: CounterTier, first: int, following: int) -> Standstill:
    return Standstill(
        tier=tier,
        datacenter=DATACENTER if tier == "live" else "offline",
        partition=TopicPartition(TOPIC if tier == "live" else f"{DATACENTER}.{TOPIC}", 0),
        first=first,
        next=following,
        reason=f"offsets {first} to {following - 1} were deleted before they were counted",
        at_ms=NOW,
    )


def test_rot_stops_the_counting_until_it_is_gone(script: Script) -> None:
    everything(script, 0, 1)
    rot = Standstill(
        tier="offline",
        datacenter="offline",
        partition=TopicPartition(f"{DATACENTER}.{TOPIC}", 0),
        first=2,
        next=2,
        reason="the batch at offset 2 does not match its checksum",
    )
    script.ledger.on_count(rot)
    outcome = script.outcome()
    assert outcome.verdict == "incomplete"
    assert "does not match its checksum" in reasons(outcome)
    script.count("offline", 2, 3)
    assert script.outcome().verdict == "complete"


@pytest.mark.parametrize("kind", ["truncation", "recreation"])
def test_what_a_source_took_back_is_a_finding_and_never_complete(script: Script, kind: str) -> None:
    everything(script, 0)
    script.ledger.on_mirror_finding(mirror_finding(kind))
    script.ledger.on_mirror_finding(mirror_finding(kind))
    outcome = script.outcome()
    assert outcome.verdict == "incomplete"
    (finding,) = as_json(outcome, script.ledger, NOW)["findings"]
    assert (finding["kind"], finding["hop"], finding["count"]) == (kind, "live_to_offline", 3)
    assert (finding["first_offset"], finding["last_offset"], finding["producer"]) == (5, 7, "")


def test_other_stops_of_the_mirror_are_reasons(script: Script) -> None:
    everything(script, 0)
    script.ledger.on_mirror_finding(mirror_finding("rot"))
    outcome = script.outcome()
    assert (outcome.verdict, outcome.findings) == ("incomplete", [])
    assert "the mirror reports rot in partition 0, offsets 5 to 7" in reasons(outcome)


def test_what_the_mirror_passed_over_at_the_end_of_a_copy_is_lost_and_not_on_its_way(script: Script) -> None:
    script.account(*range(8))
    script.count("live", 0, 8, *range(8))
    script.barrier(8)
    script.count("offline", 0, 5, *range(5))
    script.rows(0, 5, *range(5))
    assert "3 events are on their way from live to offline" in reasons(script.outcome())
    script.ledger.on_mirror_finding(mirror_finding("loss"))
    outcome = script.outcome()
    assert (outcome.verdict, reasons(outcome)) == ("loss", "")
    assert (outcome.topics[DATACENTER, TOPIC].lost, outcome.topics[DATACENTER, TOPIC].under_way) == (3, 0)
    by_sequence, by_offset = as_json(outcome, script.ledger, NOW)["findings"]
    assert (by_sequence["hop"], by_sequence["first_sequence"], by_sequence["count"]) == (
        "live_to_offline",
        5,
        3,
    )
    assert (by_offset["kind"], by_offset["partition"], by_offset["count"]) == ("loss", 0, 3)
    assert (by_offset["first_offset"], by_offset["last_offset"], by_offset["reason"]) == (5, 7, "so it is")


def test_what_the_mirror_passed_over_is_named_by_its_offsets(script: Script) -> None:
    everything(script, 0)
    script.ledger.on_mirror_finding(mirror_finding("loss"))
    said = sentence(as_json(script.outcome(), script.ledger, NOW))
    assert "up to 3 events of pageviews in dc-east from live to offline" in said
    assert "offsets 5 to 7 of partition 0: so it is" in said


def test_rot_that_the_live_counter_left_out_and_the_mirror_passed_over_is_lost(script: Script) -> None:
    script.account(*range(10))
    script.count("live", 0, 5, *range(5))
    rot = Standstill(
        tier="live",
        datacenter=DATACENTER,
        partition=TopicPartition(TOPIC, 0),
        first=5,
        next=8,
        reason="offsets 5 to 7 are left out",
        at_ms=NOW,
    )
    script.ledger.on_count(rot)
    script.count("live", 8, 10, 8, 9)
    script.ledger.on_mirror_finding(mirror_finding("loss"))
    script.barrier(10)
    script.count("offline", 0, 10, *range(5), 8, 9)
    script.rows(0, 10, *range(5), 8, 9)
    outcome = script.outcome()
    assert (outcome.verdict, "on their way" in reasons(outcome)) == ("loss", False)
    assert found(outcome)[0] == ("loss", "producer_to_live", 5, 7, 3)
    assert outcome.topics[DATACENTER, TOPIC].lost == 3


def mirror_finding(kind: str) -> MirrorFinding:
    return MirrorFinding(
        id=f"{kind}:1",
        kind=kind,
        datacenter=DATACENTER,
        topic=TOPIC,
        partition=0,
        first_offset=5,
        last_offset=7,
        detected_ms=NOW,
        reason="so it is",
    )


def test_dead_letter_topics_are_not_produced_and_need_no_table() -> None:
    script = Script(topic=f"{TOPIC}.rejected")
    script.account(0, 1)
    for tier in ("live", "offline"):
        script.count(tier, 0, 2, 0, 1)
    script.barrier(2)
    outcome = script.outcome()
    report = as_json(outcome, script.ledger, NOW)
    assert report["verdict"] == "complete"
    assert (report["totals"]["produced"], report["totals"]["rejected"]) == (0, 2)
    assert report["topics"] == []
    (row,) = report["rejected_topics"]
    assert (row["offline"], row["warehouse"]) == (2, None)
    assert [item["state"] for item in report["hops"]] == ["judged", "judged", "not loaded"]


def test_a_lost_rejected_line_is_a_loss() -> None:
    script = Script(topic=f"{TOPIC}.rejected")
    script.account(0, 1)
    script.count("live", 0, 1, 0)
    script.barrier(1)
    report = as_json(script.outcome(), script.ledger, NOW)
    assert (report["verdict"], report["totals"]["lost"]) == ("loss", 1)


def test_a_topic_that_is_loaded_late_loses_nothing_by_it(script: Script) -> None:
    """What waits for the first commit is kept, however many ranges it is."""
    count = 1000
    script.account(*range(count))
    for at in range(count):
        script.count("live", at, at + 1, at)
        script.count("offline", at, at + 1, at)
        script.ledger.settle(NOW)
    script.barrier(count)
    outcome = script.outcome()
    assert (outcome.verdict, outcome.findings) == ("incomplete", [])
    for first in range(0, count, 100):
        script.rows(first, first + 100, *(n for n in range(first, first + 100) if n != 555))
        assert all(item.first_sequence == 555 for item in script.outcome().findings)
    assert found(script.outcome()) == [("loss", "offline_to_warehouse", 555, 555, 1)]


def states(report: dict[str, Any]) -> list[tuple[str, int]]:
    """What is said of each hop, in the order of the hops: its state, and how many events are unknown."""
    return [(row["state"], row["unknown"]) for row in report["hops"]]


def test_events_that_arrive_without_a_word_of_their_producer_are_unknown_and_not_unharmed(
    script: Script,
) -> None:
    for tier in ("live", "offline"):
        script.count(tier, 0, 3, 0, 1, 2)
    script.barrier(3)
    script.rows(0, 3, 0, 1, 2)
    report = script.report()
    assert (report["verdict"], report["totals"]["produced"]) == ("incomplete", 0)
    assert states(report) == [("unknown", 3), ("judged", 0), ("judged", 0)]
    assert "3 events arrived, of which no producer's account says anything" in sentence(report)
    assert "server web-1, service shop (producer p) of pageviews in dc-east" in sentence(report)


def test_a_hop_that_begins_and_ends_in_counted_tiers_is_judged(script: Script) -> None:
    everything(script, 0, 1)
    report = script.report()
    assert states(report) == [("judged", 0)] * 3
    assert report["uncounted"] == []


def test_what_a_closed_producer_never_accounted_for_is_unknown_and_incomplete(script: Script) -> None:
    script.account(0)
    for tier in ("live", "offline"):
        script.count(tier, 0, 2, 0, 1)
    script.barrier(2)
    script.rows(0, 2, 0, 1)
    outcome = script.outcome()
    assert (outcome.verdict, reasons(outcome)) == ("incomplete", "1 of its events are in no account")
    assert states(script.report())[0] == ("unknown", 1)


def test_a_topic_that_nobody_counts_is_named_and_its_hops_are_unknown(script: Script) -> None:
    script.account(0, 1)
    script.count("offline", 0, 2, 0, 1)
    script.rows(0, 2, 0, 1)
    report = script.report()
    assert (report["verdict"], report["totals"]["under_way"]) == ("incomplete", 2)
    assert states(report) == [("unknown", 2), ("unknown", 2), ("judged", 0)]
    assert report["uncounted"] == [{"tier": "live", "datacenter": DATACENTER, "topic": TOPIC}]
    assert "no counter counts pageviews of dc-east in the live cluster" in sentence(report)
    assert "no counter counts the topic pageviews in the live cluster" in report["incomplete"][0]["reason"]


def test_a_copy_that_nobody_counts_is_named(script: Script) -> None:
    script.account(0, 1)
    script.count("live", 0, 2, 0, 1)
    script.barrier(2)
    script.rows(0, 2, 0, 1)
    report = script.report()
    assert states(report) == [("judged", 0), ("unknown", 2), ("unknown", 2)]
    assert (
        "no counter counts the topic dc-east.pageviews in the offline cluster"
        in report["incomplete"][0]["reason"]
    )


def test_a_counted_topic_without_any_event_is_counted(script: Script) -> None:
    script.account(0)
    script.barrier(0)
    report = script.report()
    assert (report["verdict"], states(report)[0]) == ("loss", ("judged", 0))
    assert report["uncounted"] == [{"tier": "offline", "datacenter": DATACENTER, "topic": TOPIC}]


def test_verdicts_open_with_where_the_producer_runs(script: Script) -> None:
    script.account(0, 1, closed=False)
    script.count("live", 0, 1, 0)
    script.barrier(1)
    report = script.report()
    (finding,) = report["findings"]
    assert (finding["server"], finding["service"], finding["producer"]) == ("web-1", "shop", PRODUCER)
    assert "loss: server web-1, service shop (producer p): 1 events of pageviews in dc-east" in sentence(
        report
    )
    assert {(item["server"], item["service"]) for item in report["incomplete"]} == {("web-1", "shop")}


def test_what_compaction_removed_is_not_lost_and_the_report_is_complete() -> None:
    script = Script(is_compacted=True)
    script.account(0, 1, 2, 3)
    script.count("live", 0, 4, 0, 2, 3, removed=1)
    script.barrier(4)
    script.count("offline", 0, 4, 2, 3, removed=2)
    script.rows(0, 4, 3)
    report = script.report()
    assert (report["verdict"], report["findings"], report["incomplete"]) == ("complete", [], [])
    assert [row["compacted"] for row in report["hops"]] == [1, 1, 1]
    assert (report["totals"]["lost"], report["totals"]["compacted"]) == (0, 3)
    assert sentence(report).startswith("Of 4 events 3 were removed by compaction")
    assert report["complete_until"] is not None


def test_a_copy_that_was_made_before_the_live_log_was_compacted_and_counted_is_no_duplicate() -> None:
    script = Script(is_compacted=True)
    script.account(0, 1)
    script.count("live", 0, 2, 1, removed=1)
    script.barrier(2)
    script.count("offline", 0, 2, 0, 1)
    script.rows(0, 2, 0, 1)
    report = script.report()
    assert (report["verdict"], report["findings"], report["incomplete"]) == ("complete", [], [])
    assert [row["compacted"] for row in report["hops"]] == [1, 0, 0]
    assert report["totals"]["compacted"] == 1


def test_the_same_absence_is_a_loss_where_nothing_compacts(script: Script) -> None:
    script.account(0, 1)
    script.count("live", 0, 2, 1, removed=1)
    script.barrier(2)
    assert found(script.outcome()) == [("loss", "producer_to_live", 0, 0, 1)]


def test_more_events_are_missing_than_compaction_removed() -> None:
    script = Script(is_compacted=True)
    script.account(0, 1, 2)
    script.count("live", 0, 2, 1, removed=1)
    script.barrier(2)
    outcome = script.outcome()
    assert found(outcome) == [
        ("loss", "producer_to_live", 0, 0, 1),
        ("loss", "producer_to_live", 2, 2, 1),
    ]


def test_copies_of_several_tallies_add_up() -> None:
    assert copies_of([*tallies(1, 2), *tallies(2)])[PRODUCER].count == 3
    assert Stream(DATACENTER, TOPIC, PRODUCER).topic == TOPIC
