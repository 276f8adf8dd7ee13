"""The checker of histories finds each thing that may not be in a history made up for it, and nothing in a good one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from history import History, Kind, Replica, findings

PLACE = ("t", 0)


def _replica(*values: bytes, high_watermark: int | None = None, epoch: bytes = b"0") -> Replica:
    numbered = dict(enumerate(values))
    batches = {offset: epoch + value for offset, value in numbered.items()}
    return Replica(numbered, batches, len(values) if high_watermark is None else high_watermark)


def _logs(history: History, *values: bytes) -> None:
    history.replicas[PLACE] = {broker: _replica(*values) for broker in range(3)}


def _write(history: History, *values: bytes, offset: int | None, producer: str = "p") -> None:
    history.done(history.begin(PLACE, producer, values), offset)


def _good(history: History) -> None:
    """Done, failed and unknown writes of several producers, reads, commits, elections."""
    history.idempotent.add("i")
    _write(history, b"p:1", offset=0)
    lost, late = history.begin(PLACE, "p", [b"p:2"]), history.begin(PLACE, "p", [b"p:3"])
    _write(history, b"i:1", b"i:2", offset=1, producer="i")
    history.begin(PLACE, "i", [b"i:3"])
    history.failed(history.begin(PLACE, "p", [b"p:4"]))
    _write(history, b"i:4", offset=None, producer="i")
    assert lost.ended is late.ended is None
    history.read("r", PLACE, 0, {0: b"p:1", 1: b"i:1"}, 2)
    history.read("r", PLACE, 2, {2: b"i:2"}, 3)
    history.read("r", PLACE, 3, {}, 3)
    history.end("r", PLACE, 3, 3)
    history.commit(PLACE, 3)
    history.fetched_commit(PLACE, 3, 3)
    history.leads(PLACE, 0, 1)
    history.leads(PLACE, 1, 2)
    _logs(history, b"p:1", b"i:1", b"i:2", b"i:3", b"p:3", b"i:4")


def _lost(history: History) -> None:
    _write(history, b"p:1", offset=0)
    _write(history, b"p:2", offset=1)
    _logs(history, b"p:1")


def _lost_repeated(history: History) -> None:
    _write(history, b"p:1", offset=None)
    _logs(history, b"p:0")


def _value_moved(history: History) -> None:
    history.begin(PLACE, "p", [b"p:1"])
    history.read("r", PLACE, 0, {0: b"p:1"}, 1)
    _logs(history, b"p:0", b"p:1")


def _offset_reused(history: History) -> None:
    history.read("r", PLACE, 0, {0: b"p:1"}, 1)
    history.read("s", PLACE, 0, {0: b"p:2"}, 1)
    _logs(history, b"p:2")


def _order_of_acknowledged(history: History) -> None:
    _write(history, b"p:1", offset=1)
    _write(history, b"p:2", offset=0)
    _logs(history, b"p:2", b"p:1")


def _order_of_unknown(history: History) -> None:
    history.idempotent.add("i")
    history.begin(PLACE, "i", [b"i:1"])
    history.begin(PLACE, "i", [b"i:2"])
    _logs(history, b"i:2", b"i:1")


def _doubled(history: History) -> None:
    history.begin(PLACE, "p", [b"p:1"])
    _logs(history, b"p:1", b"p:1")


def _skipped_first(history: History) -> None:
    history.read("r", PLACE, 0, {1: b"p:2"}, 2)
    _logs(history, b"p:1", b"p:2")


def _skipped_between(history: History) -> None:
    history.read("r", PLACE, 0, {0: b"p:1", 2: b"p:3"}, 3)
    _logs(history, b"p:1", b"p:2", b"p:3")


def _behind_its_position(history: History) -> None:
    history.read("r", PLACE, 1, {0: b"p:1", 1: b"p:2"}, 2)
    _logs(history, b"p:1", b"p:2")


def _out_of_range(history: History) -> None:
    history.read("r", PLACE, 2, None, -1)
    _logs(history, b"p:1", b"p:2")


def _end_went_back(history: History) -> None:
    history.end("r", PLACE, 2, 1)


def _above(history: History) -> None:
    history.read("r", PLACE, 0, {0: b"p:1"}, 0)
    _logs(history, b"p:1")


def _taken_back(history: History) -> None:
    history.read("r", PLACE, 0, {0: b"p:1", 1: b"p:2"}, 2)
    _logs(history, b"p:1")


def _refused(history: History) -> None:
    history.failed(history.begin(PLACE, "p", [b"p:1"]))
    _logs(history, b"p:1")


def _commit(history: History) -> None:
    history.commit(PLACE, 5)
    history.fetched_commit(PLACE, history.committed[PLACE], 4)


def _leaders(history: History) -> None:
    history.leads(PLACE, 7, 1)
    history.leads(PLACE, 7, 2)


def _other_bytes(history: History) -> None:
    history.replicas[PLACE] = {0: _replica(b"p:1"), 1: _replica(b"p:1"), 2: _replica(b"p:1", epoch=b"1")}


def _missing_bytes(history: History) -> None:
    history.replicas[PLACE] = {0: _replica(b"p:1", b"p:2"), 1: _replica(b"p:1", high_watermark=2)}


def _stuck(history: History) -> None:
    history.stuck.append("nobody leads")


def _uncovered(history: History) -> None:
    history.uncovered.append("broker 2 lacks offset 4")


BAD: list[tuple[Callable[[History], None], Kind]] = [
    (_lost, Kind.LOST),
    (_lost_repeated, Kind.LOST),
    (_value_moved, Kind.TWO_OFFSETS),
    (_offset_reused, Kind.TWO_VALUES),
    (_order_of_acknowledged, Kind.REORDERED),
    (_order_of_unknown, Kind.REORDERED),
    (_doubled, Kind.DUPLICATED),
    (_skipped_first, Kind.SKIPPED),
    (_skipped_between, Kind.SKIPPED),
    (_behind_its_position, Kind.WENT_BACK),
    (_out_of_range, Kind.WENT_BACK),
    (_end_went_back, Kind.WENT_BACK),
    (_above, Kind.ABOVE_WATERMARK),
    (_taken_back, Kind.ABOVE_WATERMARK),
    (_refused, Kind.FAILED_SHOWN),
    (_commit, Kind.COMMIT_WENT_BACK),
    (_leaders, Kind.TWO_LEADERS),
    (_other_bytes, Kind.REPLICAS_DIFFER),
    (_missing_bytes, Kind.REPLICAS_DIFFER),
    (_uncovered, Kind.UNCOVERED),
    (_stuck, Kind.NO_PROGRESS),
]


@pytest.mark.parametrize(("happen", "kind"), BAD)
def test_what_may_not_be_is_found(happen: Callable[[History], None], kind: Kind) -> None:
    history = History()
    happen(history)
    assert kind in {finding.kind for finding in findings(history)}


def test_every_kind_has_a_bad_history() -> None:
    assert {kind for _, kind in BAD} == set(Kind)


def test_nothing_is_found_in_a_good_history() -> None:
    history = History()
    _good(history)
    assert findings(history) == []


def test_what_lies_above_the_watermark_may_differ() -> None:
    history = History()
    history.replicas[PLACE] = {
        0: _replica(b"p:1", b"p:2", high_watermark=1),
        1: _replica(b"p:1", b"p:3", high_watermark=1),
    }
    assert findings(history) == []
