"""Small models of clients: they publish (idempotently, too), consume in a group, and make and delete topics, over the wire.

Requests and answers are encoded as real clients' are, by the pure client of the protocol. Each model does one thing after the
other and tries again what failed. What it was promised goes into `History`, which holds the brokers to it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from network import SimulatedLink
from world import World

from headrace.broker.errors import ErrorCode
from headrace.broker.wire import batches
from headrace.broker.wire.api import (
    k00_produce,
    k01_fetch,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k14_sync_group,
    k19_create_topics,
    k20_delete_topics,
    k22_init_producer_id,
)
from headrace.broker.wire.client.view import MOVED, Address, ClusterView
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.schema import Api

T = TypeVar("T")
TIMEOUT_MS = 10_000
GROUP = "group"
SESSION_MS = 6000
STALL_CHANCE = 0.02
AGAIN = MOVED | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NETWORK_EXCEPTION,
}
REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}


class RefusedError(Exception):
    """An answer's error code."""

    def __init__(self, code: int) -> None:
        self.code = ErrorCode(code)
        super().__init__(self.code.name)


def check(code: int) -> None:
    if code:
        raise RefusedError(code)


class History:
    """What clients were promised, and what they saw."""

    def __init__(self) -> None:
        self.acknowledged: dict[PartitionKey, dict[int, bytes]] = {}
        self.committed: dict[PartitionKey, int] = {}
        self.seen: dict[PartitionKey, dict[int, bytes]] = {}
        self.happened: Counter[str] = Counter()

    def acknowledge(self, place: PartitionKey, offset: int, value: bytes) -> None:
        self.happened["acknowledged"] += 1
        before = self.acknowledged.setdefault(place, {}).setdefault(offset, value)
        assert before == value, f"{place}: {before!r} and {value!r} were both acknowledged at {offset}"

    def read(self, place: PartitionKey, offset: int, value: bytes) -> None:
        before = self.seen.setdefault(place, {}).setdefault(offset, value)
        assert before == value, f"{place}: offset {offset} was {before!r}, and is {value!r}"

    def commit(self, place: PartitionKey, offset: int) -> None:
        self.happened["committed"] += 1
        self.committed[place] = max(offset, self.committed.get(place, -1))

    def check_committed(self, place: PartitionKey, floor: int, offset: int) -> None:
        assert offset >= floor, f"{place}: offset {floor} was committed, then {offset} was fetched"

    def check_log(self, place: PartitionKey, log: dict[int, bytes], idempotent: set[str]) -> None:
        """Acknowledged writes are where they were said to be, in the order of each producer, and once if they say so."""
        for offset, value in self.acknowledged.get(place, {}).items():
            assert log.get(offset) == value, (
                f"{place}: {value!r} was acknowledged at {offset}, where {log.get(offset)!r} is"
            )
        numbers: dict[str, list[int]] = {}
        for _, value in sorted(log.items()):
            producer, _, number = value.decode().partition(":")
            numbers.setdefault(producer, []).append(int(number))
        for producer, found in numbers.items():
            firsts = list(dict.fromkeys(found))
            assert firsts == sorted(firsts), f"{place}: {producer}'s writes are out of order: {found}"
            if producer in idempotent:
                assert len(firsts) == len(found), f"{place}: {producer}'s writes are doubled: {found}"


class Client:
    """One that knows its way in the cluster; its requests are made one after the other."""

    def __init__(self, world: World, name: str, history: History) -> None:
        self.world = world
        self.name = name
        self.history = history
        self.view = ClusterView()
        self.controller = -1
        self._links: dict[Address, SimulatedLink] = {}

    async def ask(self, address: Address | None, api: Api, highest: int, message: Message) -> Message:
        """Raises OSError, after which the connection is gone."""
        if address is None:
            raise ConnectionError("nobody is known for this")
        try:
            if address not in self._links:
                self._links[address] = await SimulatedLink.open(
                    self.world.network, self.name, address, self.name, TIMEOUT_MS
                )
            return await self._links[address].ask(api, highest, message)
        except OSError:
            if address in self._links:
                self._links.pop(address).close()
            raise

    async def refresh(self, topics: list[str]) -> None:
        """Ask any broker for its view of the cluster; raises OSError."""
        node = self.world.random.choice(list(self.world.nodes.values()))
        message = {"topics": [{"name": name} for name in topics], "allow_auto_topic_creation": False}
        answer = await self.ask(node.address, k03_metadata.API, 8, message)
        self.view.take(answer, is_whole=False)
        self.controller = answer["controller_id"]

    async def until_done(self, topics: list[str], attempt: Callable[[], Awaitable[T]]) -> T:
        """Try again, with what another broker knows, until it works."""
        while True:
            try:
                return await attempt()
            except OSError:
                pass
            except RefusedError as refused:
                if refused.code not in AGAIN:
                    raise
            self.history.happened["tried again"] += 1
            await asyncio.sleep(self.world.random.uniform(0.02, 0.3))
            try:
                await self.refresh(topics)
            except OSError:
                continue

    async def fetch(self, place: PartitionKey, offset: int, max_wait_ms: int) -> dict[int, bytes]:
        """What follows an offset, up to the high watermark."""
        topic, number = place
        wanted = {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        message = {
            "max_wait_ms": max_wait_ms,
            "min_bytes": 1,
            "topics": [{"topic": topic, "partitions": [wanted]}],
        }
        answer = await self.ask(self.view.leader_of(place), k01_fetch.API, 11, message)
        check(answer["error_code"])
        (found,) = answer["responses"][0]["partitions"]
        check(found["error_code"])
        records = bytes(found["records"] or b"")
        values: dict[int, bytes] = {}
        for position, header in batches.iter_batches(records):
            for record in batches.decode_records(records, position, header):
                if record.offset >= offset:
                    values[record.offset] = record.value or b""
                    self.history.read(place, record.offset, values[record.offset])
        return values


class Producer(Client):
    """Publishes numbered values to random partitions of a topic, each until it is acknowledged."""

    def __init__(
        self, world: World, name: str, history: History, places: list[PartitionKey], *, idempotent: bool
    ) -> None:
        super().__init__(world, name, history)
        self.idempotent = idempotent
        self.places = places
        self.is_over = False
        self.acknowledged: Counter[PartitionKey] = Counter()
        self._topics = sorted({topic for topic, _ in places})
        self._sequences: Counter[PartitionKey] = Counter()
        self._id = -1
        self._number = 0

    async def run(self) -> None:
        if self.idempotent:
            self._id = await self.until_done(self._topics, self._new_id)
        while not self.is_over:
            place = self.world.random.choice(self.places)
            values = [self._next_value() for _ in range(self.world.random.choice((1, 1, 3)))]
            batch = self._batch(place, values)
            offset = await self.until_done(self._topics, lambda: self._publish(place, batch))  # noqa: B023
            if offset is not None:
                for number, value in enumerate(values):
                    self.history.acknowledge(place, offset + number, value)
            self._sequences[place] += len(values)
            self.acknowledged[place] += 1
            await asyncio.sleep(self.world.random.uniform(0, 0.4))

    def _next_value(self) -> bytes:
        self._number += 1
        return f"{self.name}:{self._number}".encode()

    def _batch(self, place: PartitionKey, values: list[bytes]) -> bytes:
        records = [batches.Record(0, 1_700_000_000_000, None, value, []) for value in values]
        if not self.idempotent:
            return bytes(batches.encode_batch(records))
        return bytes(
            batches.encode_batch(
                records, producer_id=self._id, producer_epoch=0, base_sequence=self._sequences[place]
            )
        )

    async def _new_id(self) -> int:
        node = self.world.random.choice(list(self.world.nodes.values()))
        message = {"transactional_id": None, "transaction_timeout_ms": 1000}
        answer = await self.ask(node.address, k22_init_producer_id.API, 4, message)
        check(answer["error_code"])
        return int(answer["producer_id"])

    async def _publish(self, place: PartitionKey, batch: bytes) -> int | None:
        """Its offset, if the broker still knows it."""
        data = {"name": place[0], "partition_data": [{"index": place[1], "records": batch}]}
        message = {"acks": -1, "timeout_ms": 2000, "topic_data": [data]}
        answer = await self.ask(self.view.leader_of(place), k00_produce.API, 9, message)
        (found,) = answer["responses"][0]["partition_responses"]
        if found["error_code"] == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return None
        check(found["error_code"])
        return int(found["base_offset"])


class Consumer(Client):
    """A member of the group: joins, reads what it is assigned, commits as it goes."""

    def __init__(self, world: World, name: str, history: History, places: list[PartitionKey]) -> None:
        super().__init__(world, name, history)
        self.places = places
        self._topics = sorted({topic for topic, _ in places})
        self._coordinator: Address | None = None
        self._member = ""
        self._generation = -1
        self._positions: dict[PartitionKey, int] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.until_done(self._topics, self._find_coordinator)
                await self._join()
                while True:
                    await self._round()
            except RefusedError as refused:
                if refused.code not in AGAIN | REJOIN:
                    raise
                if refused.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member = ""
            except OSError:
                pass
            await asyncio.sleep(self.world.random.uniform(0.02, 0.3))

    async def _find_coordinator(self) -> None:
        node = self.world.random.choice(list(self.world.nodes.values()))
        answer = await self.ask(node.address, k10_find_coordinator.API, 2, {"key": GROUP, "key_type": 0})
        check(answer["error_code"])
        self._coordinator = answer["host"], answer["port"]
        await self.refresh(self._topics)

    async def _join(self) -> None:
        answer = await self._ask_to_join()
        if answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = answer["member_id"]
            answer = await self._ask_to_join()
        check(answer["error_code"])
        self._member, self._generation = answer["member_id"], answer["generation_id"]
        self.history.happened["joined"] += 1
        message = {**self._membership(), "assignments": self._assignments(answer["members"])}
        answer = await self.ask(self._coordinator, k14_sync_group.API, 3, message)
        check(answer["error_code"])
        mine = [(topic, number) for topic, number in json.loads(bytes(answer["assignment"]) or b"[]")]
        self._positions = {place: await self._committed(place) for place in mine}

    async def _ask_to_join(self) -> Message:
        message = {
            "group_id": GROUP,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": 4000,
            "member_id": self._member,
            "protocol_type": "simulated",
            "protocols": [{"name": "any", "metadata": b""}],
        }
        return await self.ask(self._coordinator, k11_join_group.API, 5, message)

    def _membership(self) -> Message:
        return {"group_id": GROUP, "generation_id": self._generation, "member_id": self._member}

    def _assignments(self, members: list[Message]) -> list[Message]:
        """Round robin, by the leader, who alone is told the members."""
        ids = [member["member_id"] for member in members]
        return [
            {"member_id": member, "assignment": json.dumps(self.places[number :: len(ids)]).encode()}
            for number, member in enumerate(ids)
        ]

    async def _committed(self, place: PartitionKey) -> int:
        floor = self.history.committed.get(place, -1)
        topics = [{"name": place[0], "partition_indexes": [place[1]]}]
        answer = await self.ask(
            self._coordinator, k09_offset_fetch.API, 5, {"group_id": GROUP, "topics": topics}
        )
        check(answer["error_code"])
        (found,) = answer["topics"][0]["partitions"]
        check(found["error_code"])
        offset: int = found["committed_offset"]
        self.history.check_committed(place, floor, offset)
        return max(0, offset)

    async def _round(self) -> None:
        for place, position in list(self._positions.items()):
            try:
                values = await self.fetch(place, position, max_wait_ms=self.world.random.choice((0, 200)))
            except (OSError, RefusedError) as error:
                if isinstance(error, RefusedError) and error.code not in AGAIN:
                    raise
                await asyncio.sleep(0.1)
                await self.refresh(self._topics)
                continue
            if values:
                assert list(values) == list(range(position, position + len(values))), f"{place}: {values}"
                self._positions[place] = position + len(values)
                await self._stall()
                await self._commit(place, position + len(values))
        check((await self.ask(self._coordinator, k12_heartbeat.API, 3, self._membership()))["error_code"])
        await asyncio.sleep(self.world.random.uniform(0.05, 0.3))

    async def _stall(self) -> None:
        """Now and then, while there are faults, for so long that the group goes on without it."""
        if self.world.network.is_faulty and self.world.random.random() < STALL_CHANCE:
            self.history.happened["stalled"] += 1
            await asyncio.sleep(self.world.random.uniform(0, 2 * SESSION_MS / 1000))

    async def _commit(self, place: PartitionKey, offset: int) -> None:
        partition = {"partition_index": place[1], "committed_offset": offset, "committed_metadata": ""}
        message = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": self._generation,
            "member_id": self._member,
            "topics": [{"name": place[0], "partitions": [partition]}],
        }
        answer = await self.ask(self._coordinator, k08_offset_commit.API, 5, message)
        check(answer["topics"][0]["partitions"][0]["error_code"])
        self.history.commit(place, offset)


class TopicMaker(Client):
    """Makes and deletes topics of a few names until it `is_over`."""

    def __init__(self, world: World, name: str, history: History) -> None:
        super().__init__(world, name, history)
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            name = f"passing-{self.world.random.randrange(3)}"
            work = self.world.random.choice((self.create, self.create, self.delete))
            code = await self.until_done([], lambda: work(name))  # noqa: B023
            self.history.happened[f"{work.__name__}: {ErrorCode(code).name}"] += 1
            await asyncio.sleep(self.world.random.uniform(0, 1.0))

    async def create(self, name: str, partition_count: int = 2) -> int:
        """Its code, an expected one."""
        topic = {"name": name, "num_partitions": partition_count, "replication_factor": 1}
        answer = await self._ask_controller(k19_create_topics.API, 4, {"topics": [topic], "timeout_ms": 5000})
        return self._expected(answer["topics"][0]["error_code"], ErrorCode.TOPIC_ALREADY_EXISTS)

    async def delete(self, name: str) -> int:
        answer = await self._ask_controller(
            k20_delete_topics.API, 3, {"topic_names": [name], "timeout_ms": 5000}
        )
        return self._expected(answer["responses"][0]["error_code"], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _ask_controller(self, api: Api, highest: int, message: Message) -> Any:
        return await self.ask(self.view.addresses.get(self.controller), api, highest, message)

    @staticmethod
    def _expected(code: int, other: ErrorCode) -> int:
        if code != other:
            check(code)
        return code
