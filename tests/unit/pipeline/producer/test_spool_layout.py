"""What is read of a spool: nothing is called acknowledged that was not, and every sequence has one outcome."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Literal

import pytest

from headrace.events.monitoring import Account, Outcome, ProcessName
from headrace.producer.spool_layout import (
    NO_OUTCOME,
    PAGE_SIZE,
    RINGS_SIZE_MAX,
    SLOTS_MAX,
    DamagedError,
    Head,
    Ring,
    layout_of,
    read_head,
    rest_of,
    slots_for,
)

NOW = 1_700_000_000_000
HEAD = Head(
    producer="p",
    server="web-1",
    service="shop",
    datacenter="dc-east",
    bootstrap="127.0.0.1:9092",
    process=ProcessName("host-1", 4711, NOW - 5000),
    boot="b",
    window_size_ms=1000,
    topics=("t", "u"),
    slots=64,
)


class File:
    """A spool's content, and the rings that write to it."""

    def __init__(self, head: Head = HEAD) -> None:
        self.head = head
        layout = layout_of(head)
        self.content = bytearray(layout.size)
        self.content[: len(head.encode())] = head.encode()
        numbers = memoryview(self.content).cast("q")
        self.ring, self.other = (Ring(numbers, layout, index) for index in range(2))

    def accounts(self, topic: str = "t") -> list[Account]:
        found = rest_of(self.head, bytes(self.content), NOW + 60_000).accounts
        return [account for of, account in found if of == topic]


def outcomes(accounts: list[Account]) -> dict[int, str]:
    """What the accounts say of each sequence; each has one outcome."""
    found: dict[int, str] = {}
    for account in accounts:
        ranges = [(*run[:2], "acknowledged") for run in account.acknowledgements]
        ranges += [(*entry[:2], entry.outcome) for entry in account.undelivered]
        for first, last, outcome in ranges:
            for at in range(int(first), int(last) + 1):
                assert at not in found
                found[at] = str(outcome)
    return found


def test_a_head_survives_and_topics_with_long_names_fit() -> None:
    head = replace(HEAD, topics=tuple(f"{'x' * 240}{at}" for at in range(50)), slots=slots_for(50))
    encoded = head.encode()
    assert (len(encoded) % PAGE_SIZE, read_head(encoded)) == (0, head)
    assert layout_of(head).size - len(encoded) <= RINGS_SIZE_MAX + PAGE_SIZE
    assert (slots_for(0), slots_for(16), slots_for(17)) == (SLOTS_MAX, SLOTS_MAX, SLOTS_MAX // 2)


def test_the_last_accounts_tell_of_every_sequence() -> None:
    file = File()
    for sequence in range(7):
        file.ring.on_sent(sequence, NOW + sequence * 300)
    file.ring.on_acknowledged(2, NOW + 700)
    file.ring.on_acknowledged(3, NOW + 1000)
    file.ring.on_failed(4, "failed")
    file.ring.on_failed(5, "unknown")
    file.ring.note(5, accounted=1)
    *windows, closing = file.accounts()
    assert outcomes(windows) == {
        1: "unknown",
        2: "acknowledged",
        3: "acknowledged",
        4: "failed",
        5: "unknown",
        6: "unknown",
    }
    assert [(each.window_start - NOW, each.count) for each in windows] == [(0, 2), (1000, 0)]
    assert windows[0].undelivered[0].reason == NO_OUTCOME
    assert [run.acknowledged_at for run in windows[0].acknowledgements] == [NOW + 700, NOW + 1000]
    assert (closing.kind, closing.next_sequence, closing.complete_until) == ("closing", 7, NOW + 60_000)
    (closing,) = file.accounts("u")
    assert (closing.kind, closing.next_sequence) == ("closing", 0)


def test_a_sequence_that_was_taken_and_not_noted_is_unknown() -> None:
    file = File()
    for sequence in (0, 2):
        file.ring.on_sent(sequence, NOW)
        file.ring.on_acknowledged(sequence, NOW)
    file.ring.note(4, accounted=0)
    assert outcomes(file.accounts()) == {0: "acknowledged", 1: "unknown", 2: "acknowledged", 3: "unknown"}


def test_a_slot_that_another_sequence_took_says_nothing_of_the_first_or_of_the_second() -> None:
    file = File()
    for sequence in range(64 + 3):
        file.ring.on_sent(sequence, NOW)
    for sequence in (0, 2, 66):
        # The first two are told of late, when their slots are those of 64 and 66.
        file.ring.on_acknowledged(sequence, NOW)
    file.ring.note(60, accounted=0)
    found = outcomes(file.accounts())
    assert len(found) == 67
    assert [at for at, outcome in found.items() if outcome == "acknowledged"] == [66]


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_acknowledged_that_was_not(seed: int) -> None:
    chance = random.Random(seed)
    file = File()
    begin = chance.choice((0, 63 * 65_536, 2**40))
    end = begin + chance.randrange(1, 300)
    under_way: list[int] = []
    truth: dict[int, Outcome | Literal["acknowledged"]] = {}
    accounted = begin
    file.ring.note(begin, accounted)
    for sequence in range(begin, end):
        file.ring.on_sent(sequence, NOW + sequence - begin)
        under_way.append(sequence)
        while len(under_way) > chance.randrange(100):
            at = under_way.pop(chance.randrange(len(under_way)))
            outcome = truth[at] = chance.choice(("acknowledged", "acknowledged", "failed", "unknown"))
            if outcome == "acknowledged":
                file.ring.on_acknowledged(at, NOW + 5)
            else:
                file.ring.on_failed(at, outcome)
        if chance.random() < 0.1:
            accounted = chance.randint(accounted, min([sequence + 1, *under_way]))
            file.ring.note(sequence + 1, accounted)
    accounts = file.accounts()
    assert accounts[-1].next_sequence == end
    found = outcomes(accounts)
    assert sorted(found) == list(range(accounted, end))
    for at, told in found.items():
        assert told == truth.get(at, "unknown") or (told == "unknown" and end - begin > HEAD.slots)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8192,
        b'{"format": "headrace-spool-2"}\n',
        b"[]\n",
        b'{"format": "headrace-spool-1"}\n',
        json.dumps({"format": "headrace-spool-1", "process": 5}).encode() + b"\n",
        replace(HEAD, slots=63).encode(),
        replace(HEAD, window_size_ms=0).encode(),
    ],
)
def test_what_is_no_spool_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedError):
        read_head(content)


@pytest.mark.parametrize("damage", ["short", "state", "time", "outcome"])
def test_a_damaged_spool_is_refused(damage: str) -> None:
    file = File()
    file.ring.on_sent(0, NOW)
    file.ring.note(1, accounted=0)
    content = file.content
    if damage == "state":
        file.ring.note(1, accounted=2)
    elif damage == "time":
        file.ring.on_sent(3, 17)
    elif damage == "outcome":
        file.ring.on_acknowledged(0, 99)
    else:
        content = content[:-8]
    with pytest.raises(DamagedError):
        rest_of(HEAD, bytes(content), NOW)
