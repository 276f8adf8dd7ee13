"""What is said of the rows of an overview that need a person."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.mirror.verbs.needs import needs

SOUND: dict[str, list[dict[str, Any]]] = {
    "sources": [
        {"source": "dc-east", "bootstrap": "east:9092", "broker": 1, "state": "answers", "reason": None}
    ],
    "topics": [],
    "partitions": [
        {"topic": "dc-east.t", "partition": 0, "state": "copying", "lag": 10, "reason": None},
        {"topic": "dc-east.u", "partition": 0, "state": "paused", "lag": None, "reason": "told to"},
    ],
    "promoted": [{"topic": "dc-east.v", "source": "dc-east", "cluster": None}],
    "aggregates": [
        {"source": "dc-east", "topic": "clicks", "partition": 2, "state": "copying", "lag": 0, "reason": None}
    ],
    "syncs": [{"source": "dc-east", "what": "groups", "broker": 1, "state": "brought", "reason": None}],
}


def test_an_overview_that_is_sound_needs_nobody() -> None:
    assert needs(SOUND) == needs(SOUND, 10) == []


@pytest.mark.parametrize(
    ("name", "changed", "sentence"),
    [
        (
            "sources",
            {"state": "never reached", "reason": "connection refused"},
            "source dc-east at east:9092, for broker 1: never reached: connection refused",
        ),
        ("partitions", {"state": "stopped", "reason": None}, "partition dc-east.t-0: stopped"),
        (
            "aggregates",
            {"state": "waiting", "reason": "its source is away"},
            "dc-east into partition clicks-2: waiting: its source is away",
        ),
        (
            "syncs",
            {"state": "fails", "reason": "not authorized"},
            "groups of dc-east, by broker 1: fails: not authorized",
        ),
    ],
)
def test_a_row_that_is_not_sound_has_a_sentence(name: str, changed: dict[str, Any], sentence: str) -> None:
    first, *others = SOUND[name]
    assert needs({**SOUND, name: [{**first, **changed}, *others]}) == [sentence]


def test_a_topic_without_a_whole_copy_has_a_sentence() -> None:
    topics = [{"source": "dc-east", "topic": "dc-east.w", "reason": "its name is too long"}]
    assert needs({**SOUND, "topics": topics}) == [
        "topic dc-east.w of dc-east: no whole copy: its name is too long"
    ]


@pytest.mark.parametrize(
    ("lag", "sentence"),
    [
        (1234, "partition dc-east.t-0: it is 1,234 messages behind its source"),
        (None, "partition dc-east.t-0: nobody knows how far it is behind its source"),
    ],
)
def test_a_copy_that_is_too_far_behind_needs_somebody(lag: int | None, sentence: str) -> None:
    copying = {**SOUND["partitions"][0], "lag": lag}
    assert needs({**SOUND, "partitions": [copying]}, 10) == [sentence]
    assert needs({**SOUND, "partitions": [copying]}) == []
