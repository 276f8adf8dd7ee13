"""Client libraries do the same with headrace as with Apache Kafka: one script, both engines at once, one result."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import chain
from typing import TypeVar

import pytest
from client_admins import ADMINS
from client_drivers import DRIVERS, Driver, Member, Record
from client_transactions import TRANSACTIONS, Seen, Step
from long_runs import first_of
from processes import eventually
from sessions import Pair, Session, create_topic
from transactional_producers import wait_for_transactions

T = TypeVar("T")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
TIMESTAMP_MS = 1_700_000_000_000
PARTITION_COUNT = 6
MESSAGE_COUNT = 20
"""In each partition."""


def agree(pair: Pair, script: Callable[[str], T]) -> T:
    """What the script returns for both brokers, which must be the same."""
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(script, (pair.headrace.bootstrap, pair.kafka.bootstrap))
    assert ours == theirs
    return ours


def make_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    host, _, port = bootstrap.rpartition(":")
    with closing(Session((host, int(port)))) as session:
        create_topic(session, name, partitions)


def records(count: int) -> list[Record]:
    return [
        Record(n, TIMESTAMP_MS + n * 1000, b"key %d" % (n % 3), b"value %d " % n * 20, [("n", b"%d" % n)])
        for n in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", DRIVERS)
def test_records_come_back_as_they_were_sent(pair: Pair, client: str, codec: str) -> None:
    topic = f"clients-{client}-{codec}"
    # A null key and a null value, and what no batch of librdkafka's default size holds at once.
    sent = [
        *records(300),
        Record(300, TIMESTAMP_MS, None, b"no key", []),
        Record(301, TIMESTAMP_MS, b"k", None, []),
    ]

    def script(bootstrap: str) -> tuple[list[int], list[Record]]:
        make_topic(bootstrap, topic)
        with closing(DRIVERS[client](bootstrap)) as driver:
            return driver.produce(topic, sent, codec), driver.read(topic, len(sent))

    offsets, read = agree(pair, script)
    assert offsets == list(range(len(sent)))
    assert read == sent


@pytest.mark.parametrize("client", DRIVERS)
def test_offsets_are_found_by_time(pair: Pair, client: str) -> None:
    topic = f"clients-{client}-times"
    times = [0, TIMESTAMP_MS, TIMESTAMP_MS + 1, TIMESTAMP_MS + 8999, TIMESTAMP_MS + 9000, TIMESTAMP_MS + 9001]

    def script(bootstrap: str) -> list[int | None]:
        make_topic(bootstrap, topic)
        with closing(DRIVERS[client](bootstrap)) as driver:
            driver.produce(topic, records(10), "none")
            return [driver.offset_at(topic, time_ms) for time_ms in times]

    assert agree(pair, script) == [0, 0, 1, 9, 9, None]


def fill(driver: Driver, topic: str) -> None:
    """Twenty messages for each partition."""
    for partition in range(PARTITION_COUNT):
        driver.produce(topic, records(MESSAGE_COUNT), "none", partition)


def poll_until(members: list[Member], condition: Callable[[], bool], what: str) -> None:
    def met() -> bool:
        for member in members:
            member.poll()
        return condition()

    eventually(met, timeout_s=60, what=what)


def is_shared(members: list[Member]) -> bool:
    """Whether each partition has one owner and each member as many as the others."""
    owned = [sorted(member.owned()) for member in members]
    share = PARTITION_COUNT // len(members)
    return sorted(chain(*owned)) == list(range(PARTITION_COUNT)) and {len(each) for each in owned} == {share}


@pytest.mark.parametrize(
    ("client", "assignor"),
    [
        pair
        for client in DRIVERS
        for pair in first_of(1, [(client, each) for each in reversed(DRIVERS[client].assignors)])
    ],
)
def test_a_group_shares_its_partitions_and_takes_over(pair: Pair, client: str, assignor: str) -> None:
    topic = f"clients-{client}-{assignor}"

    def script(bootstrap: str) -> list[int | None]:
        make_topic(bootstrap, topic, PARTITION_COUNT)
        with closing(DRIVERS[client](bootstrap)) as driver:
            first = driver.member(topic, topic, assignor)
            poll_until([first], lambda: len(first.owned()) == PARTITION_COUNT, "the first assignment")
            second = driver.member(topic, topic, assignor)
            both = [first, second]
            poll_until(both, lambda: is_shared(both), "a shared assignment")
            fill(driver, topic)
            count = PARTITION_COUNT * MESSAGE_COUNT
            poll_until(both, lambda: len(first.seen) + len(second.seen) == count, "all messages")
            assert not first.seen & second.seen
            commit_until(both, MESSAGE_COUNT)
            second.close()
            poll_until([first], lambda: len(first.owned()) == PARTITION_COUNT, "the takeover")
            first.seen.clear()
            fill(driver, topic)
            poll_until([first], lambda: len(first.seen) == count, "what came later")
            assert {offset for _, offset in first.seen} == set(range(MESSAGE_COUNT, 2 * MESSAGE_COUNT))
            commit_until([first], 2 * MESSAGE_COUNT)
            found = [first.committed(partition) for partition in range(PARTITION_COUNT)]
            first.close()
            return found

    assert agree(pair, script) == [2 * MESSAGE_COUNT] * PARTITION_COUNT


def commit_until(members: list[Member], offset: int) -> None:
    """Commit until the group's offsets say so: a rebalance may come in between."""

    def is_committed() -> bool:
        if all(members[0].committed(partition) == offset for partition in range(PARTITION_COUNT)):
            return True
        for member in members:
            member.commit()
        return False

    poll_until(members, is_committed, f"offset {offset} in every partition")


@pytest.mark.parametrize("client", DRIVERS)
def test_a_static_member_comes_back_to_its_partitions(pair: Pair, client: str) -> None:
    """Beside a member of librdkafka, which is in every rebalance."""
    topic = f"clients-{client}-static"

    def script(bootstrap: str) -> bool:
        make_topic(bootstrap, topic, PARTITION_COUNT)
        with (
            closing(DRIVERS["librdkafka"](bootstrap)) as other,
            closing(DRIVERS[client](bootstrap)) as driver,
        ):
            first = other.member(topic, topic, "range", "first")
            poll_until([first], lambda: len(first.owned()) == PARTITION_COUNT, "the first assignment")
            second = driver.member(topic, topic, "range", "second")
            both = [first, second]
            poll_until(both, lambda: is_shared(both), "a shared assignment")
            before = first.owned(), second.owned()
            second.close()
            again = driver.member(topic, topic, "range", "second")
            poll_until([first, again], lambda: bool(again.owned()), "the return")
            after = first.owned(), again.owned()
            for member in (first, again):
                member.close()
            return before == after

    assert agree(pair, script)


def test_members_of_different_libraries_share_a_group(pair: Pair) -> None:
    topic = "clients-mixed"

    def script(bootstrap: str) -> list[int]:
        make_topic(bootstrap, topic, PARTITION_COUNT)
        with ExitStack() as stack:
            drivers = [stack.enter_context(closing(driver(bootstrap))) for driver in DRIVERS.values()]
            members: list[Member] = []
            for driver in drivers:
                members.append(driver.member(topic, topic, "range"))
                poll_until(members, lambda: is_shared(members), f"a share for {len(members)} members")
            fill(drivers[0], topic)
            count = PARTITION_COUNT * MESSAGE_COUNT
            poll_until(members, lambda: sum(len(member.seen) for member in members) == count, "all messages")
            for member in members:
                member.commit()
                member.close()
            return [len(member.seen) for member in members]

    assert agree(pair, script) == [2 * MESSAGE_COUNT] * 3


@pytest.mark.parametrize("client", TRANSACTIONS)
def test_transactions_are_seen_whole(pair: Pair, client: str) -> None:
    topic = f"clients-{client}-transactions"
    steps = [
        Step([b"a", b"b"], 2, is_commit=True),
        Step([b"aborted"] * 3, 5, is_commit=False),
        Step([b"c"], 6, is_commit=True),
        Step([b"aborted"], 7, is_commit=False),
    ]
    wait_for_transactions(pair)

    def script(bootstrap: str) -> Seen:
        make_topic(bootstrap, topic)
        return TRANSACTIONS[client](bootstrap, topic, steps)

    assert agree(pair, script) == Seen([b"a", b"b", b"c"], 6)


@pytest.mark.parametrize("client", ADMINS)
def test_an_admin_client_gets_the_same_answers(pair: Pair, client: str) -> None:
    transcript = agree(pair, lambda bootstrap: ADMINS[client](bootstrap, f"clients-{client}-admin"))
    assert len(transcript) > 10
