"""A broker's connections and handlers in this process: real logs, groups, fetch sessions and caches, no sockets.

What needs ZooKeeper is a stand-in that says no or agrees without a deed; time is that of a virtual loop, which `rest` moves.
`serve` does with a frame what `server.connection` does: the gate may raise CloseConnectionError, anything else is a defect and
comes out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from faulty_files import FaultyFiles
from virtual_time import LoopClock, VirtualLoop

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.topics import LogConfig
from headrace.broker.coordinators.topics import OFFSETS_TOPIC
from headrace.broker.errors import ErrorCode, UnknownTopicOrPartitionError
from headrace.broker.handlers import table
from headrace.broker.handlers.call import Client
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.handlers.services import Services
from headrace.broker.log.results import LogSlice
from headrace.broker.log.startup import open_logs
from headrace.broker.replication.control_requests import LeaderAndIsr, UpdateMetadata
from headrace.broker.replication.topic_requests import TopicResult
from headrace.broker.server.groups import GroupCoordinator
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.metrics import BrokerMetrics
from headrace.broker.server.producer_ids import ProducerIds
from headrace.broker.server.replicas import Partitions
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.parking import Waiting
from headrace.broker.wire.fields import MalformedError
from headrace.broker.wire.frames import FrameDecoder, FrameError

SIZE_MAX = 1 << 20
PARKED_COUNT_MAX = 50
BEGAN_MS = 1_700_000_000_000
AT_ONCE_SECONDS = 1e-6
SETTINGS = {
    "zookeeper.connect": "none",
    "log.dirs": "/data",
    "log.index.size.max.bytes": "65536",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "socket.request.max.bytes": str(SIZE_MAX),
    "message.max.bytes": "100000",
    "log.segment.bytes": "1000000",
}
OVERRIDES: dict[str, dict[str, str]] = {
    "fuzz-compacted": {"cleanup.policy": "compact"},
    "fuzz-gzip": {"compression.type": "gzip"},
}


class StandInCluster:
    """What the parts of `server.cluster` do for handlers, without ZooKeeper: nothing is created, changed or deleted."""

    is_controller = True
    static_properties: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, str, int], int] = {}

    def later(self, name: str, work: Coroutine[Any, Any, Any]) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        try:
            # Who only lets others have the loop goes on at once.
            while work.send(None) is None:
                pass
        except StopIteration as done:
            deferred.complete(done.value)
        except Exception as error:
            deferred.fail(error)
        else:
            raise AssertionError(f"{name} waits for something that is not here")
        return deferred

    def of_topic(self, topic: str) -> dict[str, str]:
        return OVERRIDES.get(topic, {})

    def of_broker(self, name: str) -> dict[str, str]:
        return {}

    def is_mirrored(self, name: str) -> bool:
        return False

    def auto_create(self, names: Sequence[str]) -> None: ...

    async def perform(self, request: object) -> dict[str, Any]:
        return {"error_code": ErrorCode.STALE_CONTROLLER_EPOCH}

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[Any]:
        return []

    async def create(self, topics: Sequence[Any], **_: Any) -> list[TopicResult]:
        return [TopicResult(name=topic.name, error=ErrorCode.POLICY_VIOLATION) for topic in topics]

    async def delete(self, names: Sequence[str], **_: Any) -> list[TopicResult]:
        return [TopicResult(name=name, error=ErrorCode.TOPIC_DELETION_DISABLED) for name in names]

    async def grow(self, topic: str, count: int, assignments: Any, **_: Any) -> TopicResult:
        return TopicResult(name=topic, error=ErrorCode.POLICY_VIOLATION)

    async def alter_topic(self, topic: str, change: Any, *, validate_only: bool) -> None:
        if topic not in OVERRIDES:
            raise UnknownTopicOrPartitionError(f"no topic {topic}")
        LogConfig().with_overrides(dict(change(dict(OVERRIDES[topic]))))

    async def stored_of_topics(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        return {topic: self.of_topic(topic) for topic in topics}

    async def alter(self, wanted: Mapping[tuple[str, int], str]) -> dict[tuple[str, int], ErrorCode]:
        return dict.fromkeys(wanted, ErrorCode.LOG_DIR_NOT_FOUND)

    async def alter_broker(self, name: str, change: Any, *, validate_only: bool) -> None:
        change({})

    async def allocate_producer_id_block(self) -> tuple[int, int]:
        return 1000, 1_000_000

    async def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        self.offsets[group, topic, partition] = offset

    async def fetch(self, group: str, topic: str, partition: int) -> int | None:
        return self.offsets.get((group, topic, partition))


class FrameBroker:
    """One broker that leads two partitions of each of `topics`."""

    def __init__(self, topics: Sequence[str]) -> None:
        config, _ = BrokerConfig.from_properties(SETTINGS)
        self.files = FaultyFiles()
        self.loop = VirtualLoop()
        self.clock = LoopClock(self.loop, BEGAN_MS)
        self.cluster = StandInCluster()
        self.logs, _ = open_logs(
            self.files,
            config.log_dirs,
            LogConfig.from_broker(config),
            broker_id=1,
            cluster_id="fuzz",
            overrides=self.cluster.of_topic,
            now_ms=self.clock.now_ms(),
        )
        metadata = MetadataCache("fuzz")
        partitions = Partitions(1, self.logs, metadata, self.clock, lambda _: None)
        self.waiting = Waiting(self.loop)
        self.groups = GroupCoordinator(
            config.groups,
            clock=self.clock,
            partitions=partitions,
            metadata=metadata,
            waiting=self.waiting,
            scheduler=self.loop,
            refused_writes=RefusedWrites(),
        )
        self.metrics = BrokerMetrics()
        self.services = Services(
            broker_id=1,
            api_versions=table.VERSIONS,
            config=config,
            clock=self.clock,
            partitions=partitions,
            metadata=metadata,
            topics=self.cluster,
            configurations=self.cluster,
            control=self.cluster,
            consumer_offsets=self.cluster,
            waiting=self.waiting,
            metrics=self.metrics,
            groups=self.groups,
            producer_ids=ProducerIds(
                self.cluster.allocate_producer_id_block, lambda work: self.cluster.later("ids", work)
            ),
            moves=self.cluster,
            refused_writes=RefusedWrites(),
            later=self.cluster.later,
        )
        self.client = Client("127.0.0.1", "PLAINTEXT")
        self._lead(metadata, partitions, dict.fromkeys(topics, 2) | {OFFSETS_TOPIC: 1})
        self.parked: deque[tuple[Deferred[Any], Client]] = deque()
        self.rest()

    def _lead(self, metadata: MetadataCache, partitions: Partitions, topics: Mapping[str, int]) -> None:
        states = [
            {
                "topic_name": name,
                "topic_id": UUID(int=number + 100),
                "partition_states": [_state(partition) for partition in range(count)],
            }
            for number, (name, count) in enumerate(topics.items())
        ]
        endpoint = {"port": 9092, "host": "127.0.0.1", "listener": "PLAINTEXT", "security_protocol": 0}
        request: dict[str, Any] = {"controller_id": 1, "controller_epoch": 1, "topic_states": states}
        live = [{"id": 1, "endpoints": [endpoint], "rack": None}]
        metadata.update(UpdateMetadata.of({**request, "live_brokers": live}))
        assert (
            self.loop.run_until_complete(partitions.leader_and_isr(LeaderAndIsr.of(request)))["error_code"]
            == 0
        )
        assert len(list(partitions.led())) == sum(topics.values())

    def rest(self, ms: int = 0) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(ms / 1000 + AT_ONCE_SECONDS))

    def stream(self) -> FrameDecoder:
        """A connection's receive buffer."""
        return FrameDecoder(SIZE_MAX)

    def receive(self, decoder: FrameDecoder, data: bytes) -> tuple[list[memoryview], bool]:
        """The frames that these bytes complete, and whether the connection ends with them."""
        frames: list[memoryview] = []
        position = 0
        while position < len(data):
            room = decoder.writable()
            size = min(len(room), len(data) - position)
            room[:size] = data[position : position + size]
            position += size
            try:
                frames += [memoryview(bytearray(frame)) for frame in decoder.received(size)]
            except FrameError as error:
                return [*frames, *error.frames], True
        return frames, False

    def serve(self, frame: memoryview) -> bytes | None:
        """The reply to a frame when there is one at once; b"" when the connection is closed for it."""
        try:
            _, reply, _ = table.serve(self.services, self.client, frame, (), self.loop.time())
        except CloseConnectionError:
            return b""
        if not isinstance(reply, Deferred):
            return None if reply is None else _bytes_of(reply)
        return self._wait_for(reply)

    def _wait_for(self, reply: Deferred[Any]) -> bytes | None:
        answers: list[Any] = []
        errors: list[BaseException] = []
        reply.then(answers.append, errors.append)
        self.rest()
        if errors and not isinstance(errors[0], MalformedError | CloseConnectionError):
            raise errors[0]
        if errors:
            return b""
        if answers:
            return _bytes_of(answers[0])
        self.parked.append((reply, self.client))
        if len(self.parked) > PARKED_COUNT_MAX:
            oldest, client = self.parked.popleft()
            oldest.cancel()
            client.gone()
        # A client sends nothing more while it waits: what comes next is another's.
        self.client = Client("127.0.0.1", "PLAINTEXT")
        return None

    def close(self) -> None:
        self.groups.close()
        self.logs.close()
        self.loop.close()


def _bytes_of(parts: Sequence[bytes | LogSlice]) -> bytes:
    data = b"".join(part.read() if isinstance(part, LogSlice) else bytes(part) for part in parts)
    assert len(data) == 4 + int.from_bytes(data[:4], "big"), "a reply whose size is not that of its frame"
    return data[4:]


def _state(partition: int) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "controller_epoch": 1,
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1],
        "partition_epoch": 0,
        "zk_version": 0,
        "replicas": [1],
        "is_new": True,
    }
