"""Transactions over three brokers that are killed, cut off and paused: each is seen whole or not at all.

A producer writes to two topics' partitions in each transaction, ends it, and begins again as whoever it is after an error. Some
batches come late, when their transaction is over. What its coordinator acknowledged is there once, what it aborted is not, and
nothing hangs once all brokers are back.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from clients import Client, RefusedError, TopicMaker, check
from history import History
from long_runs import first_of
from virtual_time import VirtualLoop
from world import World

from headrace.broker.errors import ErrorCode
from headrace.broker.log.producers import COMMIT, read_marker
from headrace.broker.wire import batches
from headrace.broker.wire.api import (
    k00_produce,
    k02_list_offsets,
    k10_find_coordinator,
    k22_init_producer_id,
    k24_add_partitions_to_txn,
    k26_end_txn,
)
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.partitions import PartitionKey

SETTINGS = {
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "producer.id.expiration.ms": "86400000",
}
TOPICS = ("a", "b")
PLACES: list[PartitionKey] = [(topic, partition) for topic in TOPICS for partition in range(2)]
TRANSACTIONS_COUNT = 25
FAULTS_COUNT = 8
NAME = "tx"
TRANSACTION = 1


class TransactionalProducer(Client):
    """`acknowledged` and `aborted` are the numbers of transactions whose end it was told; of the rest nobody knows."""

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, "producer", history)
        self.acknowledged: set[int] = set()
        self.aborted: set[int] = set()
        self._number = 0
        self._coordinator: Address | None = None
        self._id, self._epoch = -1, -1
        self._sequences: dict[PartitionKey, int] = {}

    async def run(self) -> None:
        await self._begin_anew()
        for self._number in range(TRANSACTIONS_COUNT):
            try:
                await self._transaction()
            except RefusedError as refused:
                self.world.tell(f"transaction {self._number}: {refused}")
                await self._begin_anew()

    async def _transaction(self) -> None:
        places = self.world.random.sample(PLACES, self.world.random.randint(1, len(PLACES)))
        await self._ask_coordinator(k24_add_partitions_to_txn.API, 3, self._partitions(places))
        for place in places:
            batch = self._batch(place)
            await self.until_done([*TOPICS], lambda: self._publish(place, batch))  # noqa: B023
            self._sequences[place] = self._sequences.get(place, 0) + 1
        is_commit = self.world.random.random() < 0.6
        message = {**self._whoever(), "committed": is_commit}
        await self._ask_coordinator(k26_end_txn.API, 3, message)
        (self.acknowledged if is_commit else self.aborted).add(self._number)
        self.world.tell(f"transaction {self._number} ends, commit {is_commit}")
        if not is_commit and self.world.random.random() < 0.6:
            await self._come_late(self.world.random.choice(PLACES))

    async def _come_late(self, place: PartitionKey) -> None:
        """As a batch of an aborted transaction that was on its way for so long that nobody waited for it any more.

        Where the marker is not written yet it is aborted with the others. One that is not answered may still arrive: in a
        transaction of the same epoch it would count (KAFKA-14402), so another epoch follows.
        """
        try:
            await self._publish(place, self._batch(place))
        except RefusedError as refused:
            self.world.tell(f"late batch of transaction {self._number} for {place}: {refused}")
        except OSError:
            await self._begin_anew()
        else:
            self._sequences[place] = self._sequences.get(place, 0) + 1

    def _batch(self, place: PartitionKey) -> bytes:
        return bytes(
            batches.encode_batch(
                [batches.Record(0, 1, None, b"%d" % self._number, [])],
                producer_id=self._id,
                producer_epoch=self._epoch,
                base_sequence=self._sequences.get(place, 0),
                transactional=True,
            )
        )

    async def _begin_anew(self) -> None:
        message = {"transactional_id": NAME, "transaction_timeout_ms": 20_000}
        answer = await self._ask_coordinator(k22_init_producer_id.API, 4, message)
        self._id, self._epoch = answer["producer_id"], answer["producer_epoch"]
        self._sequences.clear()

    async def _publish(self, place: PartitionKey, batch: bytes) -> None:
        topic, number = place
        data = {"name": topic, "partition_data": [{"index": number, "records": batch}]}
        message = {"transactional_id": NAME, "acks": -1, "timeout_ms": 5000, "topic_data": [data]}
        answer = await self.ask(self.view.leader_of(place), k00_produce.API, 9, message)
        (found,) = answer["responses"][0]["partition_responses"]
        check(found["error_code"])

    def _whoever(self) -> dict[str, Any]:
        return {"transactional_id": NAME, "producer_id": self._id, "producer_epoch": self._epoch}

    def _partitions(self, places: list[PartitionKey]) -> dict[str, Any]:
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, number in places:
            topics[topic].append(number)
        named = [{"name": name, "partitions": numbers} for name, numbers in topics.items()]
        whoever = {f"v3_and_below_{field}": value for field, value in self._whoever().items()}
        return {**whoever, "v3_and_below_topics": named}

    async def _ask_coordinator(self, api: Any, version: int, message: dict[str, Any]) -> Any:
        """Again until it answers for good: who waits for a transaction's end, or for a coordinator, comes again."""

        async def attempt() -> Any:
            if self._coordinator is None:
                self._coordinator = await self._find_coordinator()
            try:
                answer = await self.ask(self._coordinator, api, version, message)
                check(_code(answer))
            except (OSError, RefusedError) as error:
                if not isinstance(error, RefusedError) or error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._coordinator = None
                if isinstance(error, RefusedError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise ConnectionError("not yet") from error
                raise
            return answer

        return await self.until_done([*TOPICS], attempt)

    async def _find_coordinator(self) -> Address:
        node = self.world.random.choice(list(self.world.nodes.values()))
        message = {"key": NAME, "key_type": TRANSACTION}
        answer = await self.ask(node.address, k10_find_coordinator.API, 2, message)
        check(answer["error_code"])
        return answer["host"], answer["port"]


def _code(answer: dict[str, Any]) -> int:
    if "results_by_topic_v3_and_below" not in answer:
        return int(answer["error_code"])
    codes = [
        partition["partition_error_code"]
        for topic in answer["results_by_topic_v3_and_below"]
        for partition in topic["results_by_partition"]
    ]
    return int(next((code for code in codes if code), 0))


class Reader(Client):
    """What is committed in each partition, as its log says."""

    async def stable_end(self, place: PartitionKey, isolation: int) -> int:
        topic, number = place
        partition = {"partition_index": number, "timestamp": -1, "current_leader_epoch": -1}
        message = {"isolation_level": isolation, "topics": [{"name": topic, "partitions": [partition]}]}
        answer = await self.ask(self.view.leader_of(place), k02_list_offsets.API, 5, message)
        (found,) = answer["topics"][0]["partitions"]
        check(found["error_code"])
        return int(found["offset"])

    async def settle(self) -> None:
        """Raises ConnectionError while a transaction is open."""
        await self.refresh([*TOPICS])
        ends = [[await self.stable_end(place, isolation) for isolation in (0, 1)] for place in PLACES]
        if any(end != stable for end, stable in ends):
            raise ConnectionError("not yet")


def committed_in(world: World, place: PartitionKey) -> list[int]:
    """The numbers of the transactions whose values count, from the leader's log."""
    leaders = [
        partition
        for node in world.live()
        if node.broker is not None and node.broker.partitions is not None
        for partition in [node.broker.partitions.get(*place)]
        if partition is not None and partition.is_leader
    ]
    log = leaders[0].log
    data = log.read(0, size_max=2**24, upper_offset=log.log_end_offset).read()
    pending: dict[int, list[int]] = defaultdict(list)
    found: list[int] = []
    for position, header in batches.iter_batches(data):
        if header.is_control:
            marker = read_marker(data, position, header)
            assert marker is not None
            values = pending.pop(header.producer_id, [])
            found += values if marker.kind == COMMIT else []
        else:
            pending[header.producer_id] += [
                int(record.value or b"") for record in batches.decode_records(data, position, header)
            ]
    assert not pending, "a transaction hangs"
    return found


async def _harm(world: World) -> None:
    for _ in range(FAULTS_COUNT):
        await asyncio.sleep(world.random.uniform(0.3, 3.0))
        node = world.random.choice(list(world.nodes.values()))
        match world.random.choice(("kill", "kill", "pause", "disconnect")):
            case "kill":
                world.tell(f"{node.name} is killed")
                node.kill()
                await asyncio.sleep(world.random.uniform(0.1, 5.0))
                world.start_dead()
            case "pause":
                world.tell(f"{node.name} is paused")
                node.pause(world.random.uniform(0.5, 5.0))
            case _:
                node.disconnect()


async def _live(world: World) -> None:
    world.start_dead()
    history = History()
    maker = TopicMaker(world, "maker", history, factor=3)
    for topic in TOPICS:
        await maker.until_done([], lambda: maker.create(topic))  # noqa: B023
    producer, reader = TransactionalProducer(world, history), Reader(world, "reader", history)
    async with asyncio.timeout(600):
        await maker.until_done([*TOPICS], lambda: maker.refresh([*TOPICS]))
        await asyncio.gather(producer.run(), _harm(world))
        world.start_dead()
        await reader.until_done([*TOPICS], reader.settle)
    _check(world, producer)
    for node in world.live():
        await node.stop()


def _check(world: World, producer: TransactionalProducer) -> None:
    found = {place: committed_in(world, place) for place in PLACES}
    counted: dict[int, int] = defaultdict(int)
    for place, numbers in found.items():
        assert len(numbers) == len(set(numbers)), f"{place}: twice"
        for number in numbers:
            counted[number] += 1
    assert producer.acknowledged <= counted.keys(), f"lost: {producer.acknowledged - counted.keys()}"
    assert not producer.aborted & counted.keys(), "an aborted one is seen"
    assert len(producer.acknowledged) > TRANSACTIONS_COUNT // 4


def _run(seed: int, settings: dict[str, str]) -> None:
    with VirtualLoop() as loop:
        loop.run_until_complete(_live(World(loop, seed, 3, settings)))


@pytest.mark.parametrize("seed", first_of(2, range(20)))
def test_transactions_are_whole_whatever_becomes_of_brokers(seed: int) -> None:
    _run(seed, SETTINGS)


def test_without_verification_a_late_batch_does_harm() -> None:
    off = {**SETTINGS, "transaction.partition.verification.enable": "false"}

    def run_some() -> None:
        for seed in range(5):
            _run(seed, off)

    with pytest.raises((AssertionError, TimeoutError)):
        run_some()
