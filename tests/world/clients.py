"""Small models of clients: they publish (idempotently, too), read, consume in a group, and make and delete topics, over the wire.

Requests and answers are encoded as real clients' are, by the pure client of the protocol. Each model does one thing after the
other and tries again what failed, but for the `PlainProducer`. What they were promised and saw goes into a `History`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from history import History, Write
from network import SimulatedLink
from world import World

from headrace.broker.errors import ErrorCode
from headrace.broker.wire import batches
from headrace.broker.wire.api import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
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
    k45_alter_partition_reassignments,
)
from headrace.broker.wire.client.view import MOVED, Address, ClusterView
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.schema import Api

T = TypeVar("T")
TIMEOUT_MS = 10_000
GROUP = "group"
SESSION_MS = 6000
STALL_CHANCE = 0.06
AGAIN = MOVED | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.INVALID_REPLICATION_FACTOR,
}
REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}


LEAVES_NOTHING = {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Refusals of a write that is not in the log afterwards. Who is no leader may have been one when it appended."""
PIPELINED_MAX = 3


class UnsentError(ConnectionError):
    """The request did not leave the client."""


class RefusedError(Exception):
    """An answer's error code."""

    def __init__(self, code: int) -> None:
        self.code = ErrorCode(code)
        super().__init__(self.code.name)


def check(code: int) -> None:
    if code:
        raise RefusedError(code)


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
        link = await self.link(address)
        try:
            return await link.ask(api, highest, message)
        except OSError:
            self.give_up(link)
            raise

    async def link(self, address: Address | None) -> SimulatedLink:
        """The connection to a broker; raises UnsentError."""
        if address is None:
            raise UnsentError("nobody is known for this")
        if address not in self._links:
            try:
                self._links[address] = await SimulatedLink.open(
                    self.world.network, self.name, address, self.name, TIMEOUT_MS
                )
            except OSError as error:
                raise UnsentError("no connection") from error
        return self._links[address]

    def give_up(self, link: SimulatedLink) -> None:
        """The link is of no use any more."""
        link.close()
        self._links = {address: other for address, other in self._links.items() if other is not link}

    async def refresh(self, topics: list[str]) -> None:
        """Ask any broker for its view of the cluster; raises OSError."""
        node = self.world.random.choice(list(self.world.nodes.values()))
        message = {"topics": [{"name": name} for name in topics], "allow_auto_topic_creation": False}
        answer = await self.ask(node.address, k03_metadata.API, 8, message)
        for topic in answer["topics"]:
            # Who has heard of a leader does not go back to the one before (KIP-320).
            topic["partitions"] = [
                p
                for p in topic["partitions"]
                if p["leader_epoch"] >= self.view.leader_epoch_of((topic["name"], p["partition_index"]))
            ]
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
        found = await self.fetch_from(self.view.leader_of(place), place, offset, max_wait_ms)
        if found["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.history.read(self.name, place, offset, None, found["high_watermark"])
        check(found["error_code"])
        return self.read(place, offset, found)

    def read(self, place: PartitionKey, offset: int, found: Message) -> dict[int, bytes]:
        """What an answer has of a partition."""
        values = values_in(bytes(found["records"] or b""), offset)
        self.history.read(self.name, place, offset, values, found["high_watermark"])
        return values

    async def fetch_from(
        self, address: Address | None, place: PartitionKey, offset: int, max_wait_ms: int, rack: str = ""
    ) -> Message:
        """What a broker answers for a partition; raises RefusedError when it does for the whole request."""
        topic, number = place
        wanted = {
            "partition": number,
            "current_leader_epoch": self.view.leader_epoch_of(place),
            "fetch_offset": offset,
            "partition_max_bytes": 1 << 20,
        }
        message = {
            "max_wait_ms": max_wait_ms,
            "min_bytes": 1,
            "topics": [{"topic": topic, "partitions": [wanted]}],
            "rack_id": rack,
        }
        answer = await self.ask(address, k01_fetch.API, 11, message)
        check(answer["error_code"])
        (found,) = answer["responses"][0]["partitions"]
        return dict(found)


def values_in(records: bytes, offset: int) -> dict[int, bytes]:
    """The values from an offset on, by offset."""
    return {
        record.offset: record.value or b""
        for position, header in batches.iter_batches(records)
        for record in batches.decode_records(records, position, header)
        if record.offset >= offset
    }


class Publisher(Client):
    """What producers have in common: numbered values, for random partitions of `places`."""

    def __init__(self, world: World, name: str, history: History, places: list[PartitionKey]) -> None:
        super().__init__(world, name, history)
        self.places = places
        self.is_over = False
        self.acknowledged: Counter[PartitionKey] = Counter()
        self._topics = sorted({topic for topic, _ in places})
        self._number = 0

    async def run(self) -> None:
        raise NotImplementedError

    def next_values(self) -> list[bytes]:
        values = []
        for _ in range(self.world.random.choice((1, 1, 3))):
            self._number += 1
            values.append(f"{self.name}:{self._number}".encode())
        return values

    @staticmethod
    def records_of(values: list[bytes]) -> list[batches.Record]:
        return [batches.Record(0, 1_700_000_000_000, None, value, []) for value in values]

    @staticmethod
    def request_of(place: PartitionKey, batch: bytes) -> Message:
        data = {"name": place[0], "partition_data": [{"index": place[1], "records": batch}]}
        return {"acks": -1, "timeout_ms": 2000, "topic_data": [data]}

    def taken(self, place: PartitionKey, write: Write, offset: int | None) -> None:
        self.history.done(write, offset)
        self.acknowledged[place] += 1

    async def pause(self) -> None:
        await asyncio.sleep(self.world.random.uniform(0, 0.4))


class PlainProducer(Publisher):
    """Publishes each value once, whatever becomes of it."""

    async def run(self) -> None:
        while not self.is_over:
            place, values = self.world.random.choice(self.places), self.next_values()
            batch = bytes(batches.encode_batch(self.records_of(values)))
            await self._try(place, self.history.begin(place, self.name, values), batch)
            await self.pause()

    async def _try(self, place: PartitionKey, write: Write, batch: bytes) -> None:
        try:
            link = await self.link(self.view.leader_of(place))
        except UnsentError:
            self.history.failed(write)
            await self._look_again()
            return
        try:
            answer = await link.ask(k00_produce.API, 9, self.request_of(place, batch))
        except OSError:
            self.give_up(link)
            return
        found = _place_of(answer)
        if not found["error_code"]:
            self.taken(place, write, found["base_offset"])
            return
        refused = RefusedError(found["error_code"])
        if refused.code not in AGAIN:
            raise refused
        if refused.code in LEAVES_NOTHING:
            self.history.failed(write)
        await self._look_again()

    async def _look_again(self) -> None:
        self.history.happened["tried again"] += 1
        with suppress(OSError):
            await self.refresh(self._topics)


class IdempotentProducer(Publisher):
    """Publishes each value until it is acknowledged, some requests at once, as `enable.idempotence` allows."""

    def __init__(self, world: World, name: str, history: History, places: list[PartitionKey]) -> None:
        super().__init__(world, name, history, places)
        history.idempotent.add(name)
        self._sequences: Counter[PartitionKey] = Counter()
        self._id = -1

    async def run(self) -> None:
        self._id = await self.until_done(self._topics, self._new_id)
        while not self.is_over:
            place = self.world.random.choice(self.places)
            count = self.world.random.randint(1, PIPELINED_MAX)
            pending = [self._next(place) for _ in range(count)]
            try:
                while pending:
                    await self.until_done(self._topics, lambda: self._publish(place, pending))  # noqa: B023
            except RefusedError as refused:
                if refused.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    raise
                await self._begin_anew()
            await self.pause()

    async def _begin_anew(self) -> None:
        """Give up what is pending. A broker that stopped and started remembers one batch of a producer, as Kafka's do, so
        that it does not know the first of several that are sent again.
        """
        self.history.happened["began anew"] += 1
        self._id = await self.until_done(self._topics, self._new_id)
        self._sequences.clear()

    def _next(self, place: PartitionKey) -> tuple[Write, bytes]:
        values = self.next_values()
        batch = batches.encode_batch(
            self.records_of(values),
            producer_id=self._id,
            producer_epoch=0,
            base_sequence=self._sequences[place],
        )
        self._sequences[place] += len(values)
        return self.history.begin(place, self.name, values), bytes(batch)

    async def _new_id(self) -> int:
        node = self.world.random.choice(list(self.world.nodes.values()))
        message = {"transactional_id": None, "transaction_timeout_ms": 1000}
        answer = await self.ask(node.address, k22_init_producer_id.API, 4, message)
        check(answer["error_code"])
        return int(answer["producer_id"])

    async def _publish(self, place: PartitionKey, pending: list[tuple[Write, bytes]]) -> None:
        """Send what is pending, and take away what is acknowledged, up to the first that is not."""
        link = await self.link(self.view.leader_of(place))
        messages = [self.request_of(place, batch) for _, batch in pending]
        answers = await link.ask_all(k00_produce.API, 9, messages)
        is_whole = len(answers) == len(messages)
        if not is_whole:
            self.give_up(link)
        for answer in answers:
            found = _place_of(answer)
            is_known = found["error_code"] != ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            if is_known:
                check(found["error_code"])
            self.taken(place, pending.pop(0)[0], found["base_offset"] if is_known else None)
        if not is_whole:
            raise ConnectionError("the connection broke")


def _place_of(answer: Message) -> Message:
    (found,) = answer["responses"][0]["partition_responses"]
    return dict(found)


class Reader(Client):
    """Reads one partition from its begin on, and asks for its end now and then."""

    def __init__(self, world: World, name: str, history: History, place: PartitionKey) -> None:
        super().__init__(world, name, history)
        self.place = place
        self.position = 0

    async def run(self) -> None:
        while True:
            await self.until_done([self.place[0]], self._round)
            await asyncio.sleep(self.world.random.uniform(0, 0.5))

    async def _round(self) -> None:
        values = await self.fetch(self.place, self.position, max_wait_ms=self.world.random.choice((0, 300)))
        if values:
            self.position = max(values) + 1
        if self.world.random.random() < 0.2:
            floor, end = self.position, await self._end()
            self.history.end(self.name, self.place, floor, end)

    async def _end(self) -> int:
        epoch = self.view.leader_epoch_of(self.place)
        wanted = {"partition_index": self.place[1], "current_leader_epoch": epoch, "timestamp": -1}
        message = {"replica_id": -1, "topics": [{"name": self.place[0], "partitions": [wanted]}]}
        answer = await self.ask(self.view.leader_of(self.place), k02_list_offsets.API, 5, message)
        (found,) = answer["topics"][0]["partitions"]
        check(found["error_code"])
        return int(found["offset"])


class RackReader(Reader):
    """One in the rack of a broker: reads from there whenever the leader names it, until it answers otherwise (KIP-392)."""

    def __init__(
        self, world: World, name: str, history: History, place: PartitionKey, broker_id: int
    ) -> None:
        super().__init__(world, name, history, place)
        self._rack = world.nodes[broker_id].rack
        self._nearby: Address | None = None

    async def fetch(self, place: PartitionKey, offset: int, max_wait_ms: int) -> dict[int, bytes]:
        nearby, self._nearby = self._nearby, None
        if nearby is not None:
            found = await self.fetch_from(nearby, place, offset, max_wait_ms, self._rack)
            # What it says of an error counts for nothing: the leader is asked next.
            check(found["error_code"])
            self.history.happened["read from a follower"] += 1
            self._nearby = nearby
            return self.read(place, offset, found)
        found = await self.fetch_from(self.view.leader_of(place), place, offset, max_wait_ms, self._rack)
        if found["preferred_read_replica"] >= 0:
            self._nearby = self.view.addresses.get(found["preferred_read_replica"])
            return {}
        if found["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.history.read(self.name, place, offset, None, found["high_watermark"])
        check(found["error_code"])
        return self.read(place, offset, found)


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
        self.history.fetched_commit(place, floor, offset)
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
                self._positions[place] = max(values) + 1
                await self._stall()
                await self._commit(place, max(values) + 1)
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

    def __init__(
        self,
        world: World,
        name: str,
        history: History,
        factor: int = 1,
        configs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(world, name, history)
        self.factor = factor
        self.configs = configs
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
        topic = {
            "name": name,
            "num_partitions": partition_count,
            "replication_factor": self.factor,
            "configs": [{"name": key, "value": value} for key, value in self.configs.items()],
        }
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


class Mover(Client):
    """Moves partitions to random brokers, as many as before, or cancels that, until it `is_over`."""

    def __init__(self, world: World, name: str, history: History, places: list[PartitionKey]) -> None:
        super().__init__(world, name, history)
        self.places = places
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self.world.random.uniform(0.2, 3.0))
            topic, number = self.world.random.choice(self.places)
            count = self.world.random.choice((0, 3, 3, 3))
            replicas = self.world.random.sample(list(self.world.nodes), count) or None
            wanted = {"partition_index": number, "replicas": replicas}
            message = {"timeout_ms": 5000, "topics": [{"name": topic, "partitions": [wanted]}]}
            with suppress(OSError):
                await self.refresh([topic])
                api = k45_alter_partition_reassignments.API
                answer = await self.ask(self.view.addresses.get(self.controller), api, 0, message)
                codes = [p["error_code"] for t in answer["responses"] for p in t["partitions"]]
                code = ErrorCode(answer["error_code"] or codes[0])
                self.history.happened[f"{'move' if replicas else 'cancel'}: {code.name}"] += 1
