"""The journal over topics in memory: what is written when, who reads it, and what deposed leaders write in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
from mirror_kit import LedPartition, SharedTopic, finding, lead

from headrace.mirror.memory.findings import CopyFinding, Kind
from headrace.mirror.memory.journal import CopyJournal, Journal
from headrace.mirror.memory.reports import Report, decode
from headrace.mirror.memory.state import (
    RESTORE,
    Claim,
    RestoreOrder,
    State,
    encode_restore,
    key_of,
    state_key,
)
from headrace.mirror.memory.state import decode as decode_state

ID = UUID(int=9)
PLACE = b"dc-east.t-0"
EPOCHS = ((3, 100),)


class Cluster:
    """The shared topics, and a journal a broker."""

    def __init__(self) -> None:
        self.states, self.findings, self.reports = SharedTopic(), SharedTopic(), SharedTopic()

    def journal(self, *, follows: bool = True) -> Journal:
        found = Journal(self.states, self.findings, self.reports)
        if follows:
            self.states.followers.append(found)
            self.states.read(found)
        return found

    def state(self, epoch: int) -> State:
        """The last that was written in this epoch."""
        begin = state_key(PLACE, ID, (epoch, 0))[:-1]
        return next(
            decode_state(v or b"") for k, v in reversed(self.states.pairs) if k.startswith(begin) and v
        )


class Ready(list[State]):
    """What was handed over."""

    def __call__(self, state: State) -> None:
        self.append(state)


def taken_over(journal: Journal, epoch: int, partition: LedPartition | None = None) -> Ready:
    ready = Ready()
    journal.take_over(lead(partition or LedPartition(), epoch), "east:9092", ready)
    return ready


def copy_journal(journal: Journal, epoch: int) -> CopyJournal:
    return CopyJournal(journal, lead(LedPartition(), epoch), lambda *_: None)


def test_a_broker_that_begins_again_in_the_same_epoch_is_not_disturbed_by_its_earlier_life() -> None:
    cluster = Cluster()
    first, second = cluster.journal(), cluster.journal()
    (state,) = taken_over(first, 1)
    cluster.states.is_away = True
    copy_journal(first, 1).write(replace(state, resumed_at=7), (), lambda: pytest.fail("it is over"))
    late = cluster.states.away.pop()
    cluster.states.is_away = False
    (adopted,) = taken_over(second, 1)
    assert adopted.term > state.term
    copy_journal(second, 1).write(replace(adopted, epochs=EPOCHS), (), lambda: None)
    cluster.states.commit_one(*late)
    assert taken_over(cluster.journal(), 1)[0].epochs == EPOCHS


def test_a_new_copy_has_a_fresh_state_once_it_is_written_and_not_before() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    cluster.states.is_away = True
    ready = taken_over(journal, 1)
    cluster.states.commit(1)
    assert ready == []
    cluster.states.commit(1)
    fresh = State(target_id=ID, source_bootstrap="east:9092", term=(1, 0))
    assert ready == [fresh]
    assert cluster.state(1) == fresh


def test_who_takes_over_reads_what_its_predecessor_wrote_and_writes_it_as_its_own() -> None:
    cluster = Cluster()
    first, second = cluster.journal(), cluster.journal()
    (state,) = taken_over(first, 1)
    written: list[str] = []
    copy_journal(first, 1).write(replace(state, epochs=EPOCHS), (), lambda: written.append("done"))
    assert written == ["done"]
    (found,) = taken_over(second, 2)
    assert found == replace(state, epochs=EPOCHS, term=(2, 3))
    assert cluster.states.pairs[-1] == (state_key(PLACE, ID, (1, 0)), None), "what is replaced is deleted"


def test_a_claim_lies_before_what_is_read_so_nothing_that_was_acted_on_is_missed() -> None:
    cluster = Cluster()
    first, second = cluster.journal(), cluster.journal(follows=False)
    (state,) = taken_over(first, 1)
    cluster.states.read(second)
    ready = taken_over(second, 2)
    copy_journal(first, 1).write(replace(state, epochs=EPOCHS), (), lambda: pytest.fail("it is deposed"))
    assert ready == [], "its own claim is not read yet"
    for _ in ("the claim", "its own state"):
        cluster.states.read(second)
    assert ready[0].epochs == (), "it came behind the claim"


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_a_deposed_leader_writes_late_changes_nothing_for_who_reads_it(is_compacted: bool) -> None:
    cluster = Cluster()
    first, second = cluster.journal(), cluster.journal()
    (state,) = taken_over(first, 1)
    cluster.states.is_away = True
    stopped = replace(state, stopped=finding(Kind.GAP, 1, 2))
    copy_journal(first, 1).write(stopped, (finding(Kind.GAP, 1, 2),), lambda: pytest.fail("it is deposed"))
    late = cluster.states.away.pop()
    cluster.states.is_away = False
    (adopted,) = taken_over(second, 2)
    copy_journal(second, 2).write(replace(adopted, epochs=EPOCHS), (), lambda: None)
    cluster.states.commit_one(*late)
    assert cluster.findings.pairs == [], "and tells nothing"
    if is_compacted:
        last = {record.key: record for record in cluster.states.records}
        cluster.states.records = sorted(last.values())
    for journal in (second, cluster.journal()):
        assert journal._states.newest(PLACE, ID) == replace(adopted, epochs=EPOCHS)
    assert taken_over(cluster.journal(), 3)[0].epochs == EPOCHS


def test_a_claim_of_one_who_died_before_it_wrote_anything_takes_nothing_away() -> None:
    cluster = Cluster()
    (state,) = taken_over(cluster.journal(), 1)
    cluster.states.append([(key_of(PLACE, "leader"), Claim(target_id=ID, leader_epoch=2).encode())])
    cluster.states.append([(state_key(PLACE, ID, state.term), replace(state, epochs=EPOCHS).encode())])
    last = {record.key: record for record in cluster.states.records}
    cluster.states.records = sorted(last.values())
    assert taken_over(cluster.journal(), 3)[0].epochs == EPOCHS, "it is all that compaction left"


def test_a_state_of_an_earlier_topic_of_the_name_is_void() -> None:
    cluster = Cluster()
    taken_over(cluster.journal(), 7)
    again = LedPartition()
    again.topic_id = UUID(int=10)
    (state,) = taken_over(cluster.journal(), 0, again)
    assert state == State(target_id=UUID(int=10), source_bootstrap="east:9092", term=(0, 2))


def test_states_of_earlier_versions_are_taken_over_and_deleted_where_they_lie() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    old = State(target_id=ID, source_bootstrap="east:9092", epochs=EPOCHS)
    for partition, timestamp_ms, state in ((1, 5, old), (2, 3, replace(old, epochs=()))):
        record = SharedTopic()
        record.now_ms = timestamp_ms
        record.append([(PLACE, state.encode())])
        journal.read(partition, record.records, 1)
    assert journal.remembers(cast("Any", LedPartition(end=10)))
    (state,) = taken_over(journal, 4)
    assert state == replace(old, term=(4, 0)), "the later one"
    assert sorted(cluster.states.elsewhere) == [(1, PLACE, None), (2, PLACE, None)]


def test_findings_are_told_after_the_state_that_they_came_with_and_before_anything_goes_on() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    (state,) = taken_over(journal, 1)
    gap = finding(Kind.GAP, 1, 2)
    cluster.findings.is_away = True
    written: list[str] = []
    copy_journal(journal, 1).write(replace(state, stopped=gap), (gap,), lambda: written.append("done"))
    assert cluster.state(1).untold == (gap,)
    assert (written, journal.findings_count) == ([], {})
    cluster.findings.commit()
    assert (written, journal.findings_count) == (["done"], {Kind.GAP: 1})
    assert cluster.findings.pairs == [(PLACE, gap.encode())]
    assert cluster.state(1) == replace(state, stopped=gap)


def test_who_takes_over_tells_what_is_not_known_to_be_told_and_only_that() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    (state,) = taken_over(journal, 1)
    gap = finding(Kind.GAP, 1, 2)
    cluster.findings.is_away = True
    copy_journal(journal, 1).write(replace(state, stopped=gap), (gap,), lambda: None)
    cluster.findings.away.clear()
    cluster.findings.is_away = False
    for epoch in (2, 3, 4):
        (found,) = taken_over(cluster.journal(), epoch)
        assert found.stopped == gap
    assert cluster.findings.pairs == [(PLACE, gap.encode())]


def test_what_a_copier_writes_is_written_one_after_the_other() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    (state,) = taken_over(journal, 1)
    cluster.findings.is_away = True
    order: list[int] = []
    written = copy_journal(journal, 1)
    findings: tuple[Sequence[CopyFinding], ...] = ((finding(Kind.GAP, 1, 2),), ())
    for number, told in enumerate(findings):
        written.write(replace(state, resumed_at=number), told, lambda number=number: order.append(number))  # type: ignore[misc]
    assert cluster.state(1).resumed_at == 0, "the second waits until the first's finding is told"
    cluster.findings.commit()
    assert order == [0, 1]
    assert cluster.state(1).resumed_at == 1


def test_a_promoted_copy_is_forgotten_once() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    partition = LedPartition()
    taken_over(journal, 1)
    assert journal.remembers(cast("Any", partition))
    cluster.states.is_away = True
    journal.forget(cast("Any", partition))
    journal.forget(cast("Any", partition))
    assert len(cluster.states.away) == 1
    cluster.states.commit()
    assert not journal.remembers(cast("Any", partition))
    journal.forget(cast("Any", partition))
    assert cluster.states.away == []


def test_a_log_that_is_not_what_was_read_is_read_again_and_nobody_waits_for_ever() -> None:
    cluster = Cluster()
    journal = cluster.journal(follows=False)
    ready = taken_over(journal, 1)
    cluster.states.records.clear()
    journal.reread(0)
    cluster.states.read(journal)
    cluster.states.read(journal)
    assert [state.term[0] for state in ready] == [1]


def test_the_newest_report_waits_for_the_one_that_is_being_written() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    cluster.reports.is_away = True
    for at_ms in (1, 2, 3):
        journal.tell(Report(broker=1, at_ms=at_ms, sources=()))
    assert len(cluster.reports.away) == 1
    cluster.reports.is_away = False
    cluster.reports.commit()
    assert [decode(value or b"").at_ms for _, value in cluster.reports.pairs] == [1, 3]


def test_an_order_to_restore_holds_until_it_is_carried_out() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    key, order = key_of(PLACE, RESTORE), RestoreOrder(target_id=ID, source_id=UUID(int=3), end_offset=7)
    led = lead(LedPartition())
    assert journal.restore_of(led) is None
    cluster.states.append([(key, encode_restore(order))])
    assert journal.restore_of(led) == order
    other = LedPartition()
    other.topic_id = UUID(int=10)
    assert journal.restore_of(lead(other)) is None, "it was for an earlier topic of the name"
    (state,) = taken_over(journal, 1)
    done: list[str] = []
    journal.restored(led, state.restored(order), lambda: done.append("copied to"))
    assert (done, journal.restore_of(led)) == (["copied to"], None)
    assert cluster.state(1) == replace(
        State(target_id=ID), source_id=UUID(int=3), source_bootstrap="east:9092", term=state.term
    )
    assert cluster.states.pairs[-1] == (key, None)


def test_a_deposed_leader_ends_no_order() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    order = RestoreOrder(target_id=ID, source_id=UUID(int=3), end_offset=7)
    cluster.states.append([(key_of(PLACE, RESTORE), encode_restore(order))])
    (state,) = taken_over(journal, 1)
    taken_over(cluster.journal(), 2)
    journal.restored(lead(LedPartition(), 1), state, lambda: pytest.fail("it is another leader's"))
    assert journal.restore_of(lead(LedPartition(), 2)) == order


def test_orders_to_restore_are_read_again_with_the_rest() -> None:
    cluster = Cluster()
    journal = cluster.journal()
    order = RestoreOrder(target_id=ID, source_id=UUID(int=3), end_offset=7)
    cluster.states.append([(key_of(PLACE, RESTORE), encode_restore(order))])
    cluster.states.records.clear()
    journal.reread(0)
    assert journal.restore_of(lead(LedPartition())) is None
