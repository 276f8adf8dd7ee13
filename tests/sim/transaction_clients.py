"""Small models of transactional producers, and of who reads what they committed.

A producer knows of each transaction whether its coordinator acknowledged a commit or an abort; of the rest nobody knows. After a
request without an answer it goes on in another epoch, so that what arrives late is fenced: in the same epoch it may end, or be
part of, a later transaction (KAFKA-17754, KAFKA-14402). `is_careful` says that it does.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from clients import Client, RefusedError, check
from history import History
from world import World

from headrace.broker.errors import ErrorCode
from headrace.broker.log.producers import COMMIT, read_marker
from headrace.broker.wire import batches
from headrace.broker.wire.api import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k10_find_coordinator,
    k22_init_producer_id,
    k24_add_partitions_to_txn,
    k26_end_txn,
)
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey

TOPICS = ("a", "b")
PLACES: list[PartitionKey] = [(topic, partition) for topic in TOPICS for partition in range(2)]
NAME = "tx"
TIMEOUT_MS = 20_000
TRANSACTION, READ_COMMITTED = 1, 1
FETCH_VERSION = 11
PAUSE_SECONDS = (0.01, 0.2, 1.0)
"""How long a producer does something else, at most."""


@dataclass(slots=True)
class Attempted:
    """A transaction: where it wrote, in which epoch, and how it ended as far as its producer was told."""

    places: frozenset[PartitionKey]
    producer: tuple[int, int]
    is_committed: bool | None = None


@dataclass(slots=True)
class Transactions:
    """All that were attempted under one transactional id, by number, and the newest producer that anybody was told of."""

    attempted: dict[int, Attempted] = field(default_factory=dict)
    newest: tuple[int, int] = (-1, -1)
    by_the_fenced: list[int] = field(default_factory=list)
    """Those that were begun after another producer had taken over, and acknowledged all the same."""

    def numbers(self, *, is_committed: bool) -> set[int]:
        return {n for n, attempted in self.attempted.items() if attempted.is_committed is is_committed}

    def begin(self, places: list[PartitionKey], producer: tuple[int, int]) -> int:
        number = len(self.attempted)
        self.attempted[number] = Attempted(frozenset(places), producer)
        return number


class TransactionalProducer(Client):
    """It makes `count` transactions, one after the other; several may have the same transactional id, and fence each other."""

    def __init__(
        self,
        world: World,
        history: History,
        transactions: Transactions,
        count: int,
        name: str = "producer",
        *,
        is_careful: bool = True,
    ) -> None:
        super().__init__(world, name, history)
        self._transactions = transactions
        self._count = count
        self._is_careful = is_careful
        self._coordinator: Address | None = None
        self._producer = (-1, -1)
        self._sequences: dict[PartitionKey, int] = {}
        self._is_unanswered = False

    async def run(self) -> None:
        await self.until_done([*TOPICS], lambda: self.refresh([*TOPICS]))
        await self._begin_anew()
        for _ in range(self._count):
            try:
                await self._transaction()
            except RefusedError as refused:
                self.world.tell(f"{self.name}: {refused}")
                await asyncio.sleep(self.world.random.uniform(0.0, 0.3))
                await self._begin_anew()

    async def _transaction(self) -> None:
        if self._is_unanswered and self._is_careful:
            await self._begin_anew()
        self._is_unanswered = False
        places = self.world.random.sample(PLACES, self.world.random.randint(1, len(PLACES)))
        is_fenced = self._producer < self._transactions.newest
        number = self._transactions.begin(places, self._producer)
        await self._ask_coordinator(k24_add_partitions_to_txn.API, 3, self._partitions(places))
        for place in places:
            await self._pause()
            await self._write(place, number)
        await self._pause()
        is_commit = self.world.random.random() < 0.6
        self.world.tell(f"{self.name} ends transaction {number}, commit {is_commit}")
        await self._ask_coordinator(k26_end_txn.API, 3, {**self._whoever(), "committed": is_commit})
        self._transactions.attempted[number].is_committed = is_commit
        if is_fenced:
            self._transactions.by_the_fenced.append(number)
        if not is_commit and self.world.random.random() < 0.6:
            await self._come_late(self.world.random.choice(PLACES), number)

    async def _pause(self) -> None:
        await asyncio.sleep(self.world.random.uniform(0.0, self.world.random.choice(PAUSE_SECONDS)))

    async def _write(self, place: PartitionKey, number: int) -> None:
        batch = self._batch(place, number)
        await self.until_done([*TOPICS], lambda: self._publish(place, batch))
        self._sequences[place] = self._sequences.get(place, 0) + 1

    async def _come_late(self, place: PartitionKey, number: int) -> None:
        """As a batch of an aborted transaction that was on its way for so long that nobody waited for it any more.

        Where the marker is not written yet it is aborted with the others.
        """
        try:
            await self._publish(place, self._batch(place, number))
        except RefusedError as refused:
            self.world.tell(f"late batch of transaction {number} for {place}: {refused}")
        except OSError:
            pass
        else:
            self._sequences[place] = self._sequences.get(place, 0) + 1

    def _batch(self, place: PartitionKey, number: int) -> bytes:
        producer_id, epoch = self._producer
        return bytes(
            batches.encode_batch(
                [batches.Record(0, 1, None, b"%d" % number, [])],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=self._sequences.get(place, 0),
                transactional=True,
            )
        )

    async def _begin_anew(self) -> None:
        message = {"transactional_id": NAME, "transaction_timeout_ms": TIMEOUT_MS}
        answer = await self._ask_coordinator(k22_init_producer_id.API, 4, message)
        self._producer = answer["producer_id"], answer["producer_epoch"]
        self._transactions.newest = max(self._transactions.newest, self._producer)
        self._sequences.clear()

    async def _publish(self, place: PartitionKey, batch: bytes) -> None:
        topic, number = place
        data = {"name": topic, "partition_data": [{"index": number, "records": batch}]}
        message = {"transactional_id": NAME, "acks": -1, "timeout_ms": 5000, "topic_data": [data]}
        answer = await self.ask(self.view.leader_of(place), k00_produce.API, 9, message)
        (found,) = answer["responses"][0]["partition_responses"]
        check(found["error_code"])

    def _whoever(self) -> Message:
        producer_id, epoch = self._producer
        return {"transactional_id": NAME, "producer_id": producer_id, "producer_epoch": epoch}

    def _partitions(self, places: list[PartitionKey]) -> Message:
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, number in places:
            topics[topic].append(number)
        named = [{"name": name, "partitions": numbers} for name, numbers in topics.items()]
        whoever = {f"v3_and_below_{name}": value for name, value in self._whoever().items()}
        return {**whoever, "v3_and_below_topics": named}

    async def ask(self, address: Address | None, api: Any, highest: int, message: Message) -> Message:
        try:
            return await super().ask(address, api, highest, message)
        except OSError:
            self._is_unanswered = True
            raise

    async def _ask_coordinator(self, api: Any, version: int, message: Message) -> Message:
        """Again until it answers for good: who waits for a transaction's end, or for a coordinator, comes again."""

        async def attempt() -> Message:
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
        answer = await self.ask(
            node.address, k10_find_coordinator.API, 2, {"key": NAME, "key_type": TRANSACTION}
        )
        check(answer["error_code"])
        return answer["host"], answer["port"]


def _code(answer: Message) -> int:
    if "results_by_topic_v3_and_below" not in answer:
        return int(answer["error_code"])
    codes = [
        partition["partition_error_code"]
        for topic in answer["results_by_topic_v3_and_below"]
        for partition in topic["results_by_partition"]
    ]
    return int(next((code for code in codes if code), 0))


class CommittedReader(Client):
    """Reads what is committed of all partitions as a consumer does, while it goes on and at the end."""

    def __init__(self, world: World, history: History) -> None:
        super().__init__(world, "reader", history)
        self.read_numbers: dict[PartitionKey, list[int]] = {place: [] for place in PLACES}
        self._offsets = dict.fromkeys(PLACES, 0)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            place = self.world.random.choice(PLACES)
            await self.until_done([*TOPICS], lambda: self.read_on(place))  # noqa: B023
            await asyncio.sleep(self.world.random.uniform(0.0, 0.1))

    async def read_on(self, place: PartitionKey) -> int:
        """Read what is there; the last stable offset."""
        topic, number = place
        wanted = {
            "partition": number,
            "current_leader_epoch": self.view.leader_epoch_of(place),
            "fetch_offset": self._offsets[place],
            "partition_max_bytes": 1 << 20,
        }
        message = {
            "max_wait_ms": 200,
            "min_bytes": 1,
            "isolation_level": READ_COMMITTED,
            "topics": [{"topic": topic, "partitions": [wanted]}],
            "rack_id": "",
        }
        answer = await self.ask(self.view.leader_of(place), k01_fetch.API, FETCH_VERSION, message)
        check(answer["error_code"])
        (found,) = answer["responses"][0]["partitions"]
        check(found["error_code"])
        self._take(place, bytes(found["records"] or b""), found["aborted_transactions"] or [])
        return int(found["last_stable_offset"])

    def _take(self, place: PartitionKey, records: bytes, aborted: list[Message]) -> None:
        waiting = sorted((each["first_offset"], each["producer_id"]) for each in aborted)
        void: set[int] = set()
        for position, header in batches.iter_batches(records):
            while waiting and waiting[0][0] <= header.last_offset:
                void.add(waiting.pop(0)[1])
            if header.next_offset <= self._offsets[place]:
                continue
            if header.is_control:
                marker = read_marker(records, position, header)
                if marker is not None and marker.kind != COMMIT:
                    void.discard(header.producer_id)
            elif header.producer_id not in void:
                self.read_numbers[place] += numbers_of(records, position, header)
            self._offsets[place] = header.next_offset

    async def settle(self) -> None:
        """Raises ConnectionError while a transaction is open, or not all is read."""
        await self.refresh([*TOPICS])
        for place in PLACES:
            end = await self._end(place)
            if await self.read_on(place) != end or self._offsets[place] != end:
                raise ConnectionError("not yet")

    async def _end(self, place: PartitionKey) -> int:
        topic, number = place
        partition = {"partition_index": number, "timestamp": -1, "current_leader_epoch": -1}
        message = {"isolation_level": 0, "topics": [{"name": topic, "partitions": [partition]}]}
        answer = await self.ask(self.view.leader_of(place), k02_list_offsets.API, 5, message)
        (found,) = answer["topics"][0]["partitions"]
        check(found["error_code"])
        return int(found["offset"])


def numbers_of(records: bytes, position: int, header: batches.BatchHeader) -> list[int]:
    return [int(record.value or b"") for record in batches.decode_records(records, position, header)]
