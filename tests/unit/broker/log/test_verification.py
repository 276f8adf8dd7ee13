"""What lets the first batch of a transaction in, and what takes that away again."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_kit import NOW_MS, open_log

from headrace.broker.errors import InvalidTransactionStateError, OutOfOrderSequenceError
from headrace.broker.log import verification
from headrace.broker.log.appender import Appender
from headrace.broker.log.producers import ABORT, COMMIT, Marker
from headrace.broker.log.verification import Verification
from headrace.broker.wire.batches import Record, encode_batch, read_header

PRODUCER = 7


class Led:
    """A log, as its leader writes to it."""

    def __init__(self, folder: Path) -> None:
        self.log, _ = open_log(folder)
        self.appender = Appender(self.log)

    def begin(self, sequence: int = 0, epoch: int = 0) -> Verification | None:
        return self.log.producers.begin_verification(PRODUCER, sequence, epoch, NOW_MS)

    def write(self, asked: Verification | None, sequence: int = 0, epoch: int = 0) -> None:
        records = memoryview(
            encode_batch(
                [Record(0, NOW_MS, None, b"v", [])],
                producer_id=PRODUCER,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
        self.log.producers.check_verified(read_header(records), asked)
        self.appender.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)

    def end(self, kind: int) -> None:
        self.appender.append_marker(PRODUCER, 0, Marker(kind, 1), leader_epoch=0, now_ms=NOW_MS)


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path)


def test_the_first_batch_needs_an_entry_and_those_behind_it_none(led: Led) -> None:
    with pytest.raises(InvalidTransactionStateError):
        led.write(None)
    led.write(led.begin())
    assert led.begin(1) is None
    led.write(None, 1)


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_a_marker_takes_the_entry_away(led: Led, kind: int) -> None:
    late = led.begin()
    led.end(kind)
    assert len(led.log.producers.verifications) == 0
    with pytest.raises(InvalidTransactionStateError):
        led.write(late)
    # The next transaction's entry is another one.
    anew = led.begin()
    with pytest.raises(InvalidTransactionStateError):
        led.write(late)
    led.write(anew)


def test_an_entry_counts_for_one_transaction(led: Led) -> None:
    entry = led.begin()
    led.write(entry)
    led.end(COMMIT)
    with pytest.raises(InvalidTransactionStateError):
        led.write(entry, 1)


def test_what_is_in_the_log_already_is_answered_as_such(led: Led) -> None:
    led.write(led.begin())
    led.end(COMMIT)
    led.write(None)
    assert led.log.log_end_offset == 2


def test_no_batch_overtakes_the_first_that_waits(led: Led) -> None:
    entry = led.begin(5)
    assert led.begin(3) is entry
    assert led.begin(4) is entry
    for late in (4, 5):
        with pytest.raises(OutOfOrderSequenceError):
            led.write(entry, late)
    led.write(entry, 3)


def test_another_epoch_begins_a_sequence_of_its_own(led: Led) -> None:
    entry = led.begin(0, epoch=1)
    assert led.begin(4, epoch=2) is entry
    led.begin(0, epoch=1)
    led.write(entry, 4, epoch=2)


def test_entries_that_nobody_comes_back_with_expire(led: Led) -> None:
    entry = led.begin()
    led.log.expire_producers(NOW_MS + 999, 1000)
    assert entry is not None
    assert led.log.producers.is_verified(PRODUCER, entry)
    led.log.expire_producers(NOW_MS + 1000, 1000)
    assert not led.log.producers.is_verified(PRODUCER, entry)


def test_beyond_the_bound_the_oldest_entry_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "VERIFICATIONS_MAX", 2)
    entries = verification.Verifications()
    for producer_id in (1, 2, 3):
        entries.begin(producer_id, 0, 0, NOW_MS)
    assert [entries.get(producer_id) is not None for producer_id in (1, 2, 3)] == [False, True, True]
