"""Records wait for schemas once, however many are unknown, and what is remembered of it has bounds."""

from __future__ import annotations

import pytest

from headrace.broker.wire.partitions import TopicPartition
from headrace.load import schema_waits
from headrace.load.schema_waits import SchemaWaits

PLACE = TopicPartition("dc-east.pageviews", 3)
OTHER = TopicPartition("dc-west.pageviews", 3)


def test_ids_are_waited_for_side_by_side_from_when_each_was_first_met() -> None:
    waits = SchemaWaits(60)
    assert waits.note(PLACE, [1, 2], 100, now=0) == [1, 2]
    assert waits.note(PLACE, [2, 3], 100, now=30) == [3]
    assert waits.given_up(59) == frozenset()
    assert waits.given_up(60) == {(PLACE.topic, 1), (PLACE.topic, 2)}


def test_an_id_of_one_topic_is_not_that_of_another() -> None:
    waits = SchemaWaits(60)
    waits.note(PLACE, [1], 100, now=0)
    assert waits.note(OTHER, [1], 100, now=50) == [1]
    assert waits.given_up(60) == {(PLACE.topic, 1)}


def test_all_that_the_log_held_when_a_partition_stood_still_has_waited_with_it() -> None:
    waits = SchemaWaits(60)
    waits.note(PLACE, [1], 100, now=0)
    waits.note(PLACE, [1], 150, now=10)
    waits.note(PLACE, [1], 200, now=12)
    assert waits.given_up_before(PLACE, 59) == 0
    assert waits.given_up_before(PLACE, 60) == 100
    assert waits.given_up_before(PLACE, 70) == 150
    assert waits.given_up_before(OTHER, 70) == 0


def test_a_partition_that_went_on_waits_anew() -> None:
    waits = SchemaWaits(60)
    waits.note(PLACE, [1], 100, now=0)
    waits.passed(PLACE, 99)
    assert waits.given_up_before(PLACE, 60) == 100
    waits.passed(PLACE, 100)
    assert waits.given_up_before(PLACE, 60) == 0
    waits.note(PLACE, [2], 120, now=70)
    assert waits.given_up_before(PLACE, 100) == 0


def test_what_is_remembered_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_waits, "IDS_MAX", 5)
    waits = SchemaWaits(60)
    for second in range(200):
        waits.note(PLACE, [second], second, now=second)
        waits.given_up_before(PLACE, second)
    assert len(waits.given_up(10_000)) == 5
    assert len(waits._marks[PLACE]) <= schema_waits.MARKS_PER_WAIT + 2
