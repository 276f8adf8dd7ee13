"""The broker's coordinator of groups in the simulation of groups, from its crash to its next life.

Between its seams (clock, scheduler, disk, a follower that fetches) all is real: `GroupCoordinator`, runtime, shard, journal,
partition and log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from faulty_files import FaultyFiles
from group_clients import GROUP
from replica_kit import ScriptedHost, told

from headrace.broker.config.sections import Groups
from headrace.broker.config.topics import LogConfig
from headrace.broker.coordinators.topics import OFFSETS_TOPIC
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.decision import GroupDecision
from headrace.broker.groups.events import Event, Request
from headrace.broker.groups.kind import GroupKind
from headrace.broker.groups.machine import Shard
from headrace.broker.groups.records import GroupKey, OffsetKey, decode_key, decode_offset_value
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.log.startup import open_logs
from headrace.broker.replication.partition import Partition
from headrace.broker.server.coordinators.groups import GroupCoordinator
from headrace.broker.waiting.parking import Waiting
from headrace.broker.wire import batches

if TYPE_CHECKING:
    from group_world import World

CONFIG = Groups(group_initial_rebalance_delay_ms=200, group_max_size=5)
LOGS = LogConfig(min_insync_replicas=2, segment_index_bytes=4096)
TOPIC_ID = UUID(int=1)
LEADER, FOLLOWER = 1, 2
LOAD_MS_MAX = 1_000
REPLICATION_MS_MAX = 400
FAILURE_CHANCE = 0.05


class Timer:
    """What the scheduler gives for work that is to be done later."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Process:
    """What a life of the coordinator has of its host: clock, scheduler, metadata and partition; none of it survives it."""

    def __init__(self, world: World, partition: Partition) -> None:
        self._world = world
        self.partition = partition
        self.is_over = False
        self.soon_ms_max = LOAD_MS_MAX

    def now_ms(self) -> int:
        return self._world.now_ms

    monotonic_ms = now_ms

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Timer:
        return self.call_later(self._world.random.randint(0, self.soon_ms_max) / 1000, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer()

        def call() -> None:
            if not self.is_over and not timer.is_cancelled:
                callback(*args)

        self._world.after(round(delay * 1000), call)
        return timer

    def led(self) -> Iterable[Partition]:
        return ()

    def on_change(self, callback: Callable[[Partition], None]) -> None:
        self._changed = callback

    def lead(self, leader: int, epoch: int) -> None:
        """The controller's word."""
        self.partition.follow(told(leader, epoch, (LEADER, FOLLOWER)))
        self._changed(self.partition)


class Metadata:
    """A metadata cache of a cluster without topics but that of groups."""

    def topics(self, name: str) -> list[int]:
        return [0]

    def topic_names(self) -> Iterable[str]:
        return ()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Nothing does."""


class WatchedShard(Shard):
    """Checks what it decides."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(CONFIG)
        self.coordinator = coordinator

    def decide(self, event: Event, now_ms: int, token: int = 0) -> GroupDecision:
        self.coordinator.process.soon_ms_max = 0
        before = repr(self.groups)
        decision = super().decide(event, now_ms, token)
        assert repr(self.groups) == before, "a decision changes nothing"
        assert sum(isinstance(decode_key(r.key), GroupKey) for r in decision.records) <= 1
        self.coordinator.maybe_lose_follower()
        return decision

    def append_failed(
        self, event: Event, decision: GroupDecision, error: ErrorCode, now_ms: int, token: int = 0
    ) -> GroupDecision:
        self.coordinator.world.tell(f"append of {type(event).__name__} fails")
        return super().append_failed(event, decision, error, now_ms, token)


class WatchedPartition(Partition):
    """Tells the coordinator's world of what is appended."""

    __slots__ = ("appended_by_leader",)

    appended_by_leader: Callable[[memoryview], None]

    def append_own(self, records: memoryview, *, now_ms: int) -> Any:
        result = super().append_own(records, now_ms=now_ms)
        self.appended_by_leader(records)
        return result


class Coordinator:
    """The coordinator, its log, and who breaks both."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.files = FaultyFiles()
        self.stored: dict[int, int] = {}
        self.ends = [0]
        self.epoch = 0
        self.is_down = False
        self._begin_life(kept=0)

    def _begin_life(self, kept: int) -> None:
        """A start, and what the log lost to another leader meanwhile."""
        logs, _ = open_logs(
            self.files,
            ["/data"],
            LOGS,
            broker_id=LEADER,
            cluster_id="simulated",
            overrides=lambda topic: {},
            now_ms=self.world.now_ms,
        )
        self.log = logs.create(OFFSETS_TOPIC, 0, TOPIC_ID, now_ms=self.world.now_ms)
        logs.truncate_at_once(self.log, kept)
        partition = WatchedPartition(ScriptedHost(LEADER), OFFSETS_TOPIC, 0, TOPIC_ID, self.log)
        partition.appended_by_leader = self._appended
        self.process = process = Process(self.world, partition)
        self.waiting = Waiting(process)
        self.groups = GroupCoordinator(
            CONFIG,
            clock=process,
            partitions=process,
            metadata=Metadata(),
            waiting=self.waiting,
            scheduler=process,
            refused_writes=RefusedWrites(),
        )
        self.groups._runtime._kind.shard = lambda: WatchedShard(self)  # type: ignore[method-assign]
        self.epoch += 1
        process.lead(LEADER, self.epoch)
        self._replicated(process, self.log.log_end_offset)

    def shard(self) -> Shard:
        (shard,) = self.groups._runtime.shards(loading=True)
        return shard

    def receive(self, request: Request[Any], reply: Callable[[Any], None]) -> None:
        if self.is_down:
            return
        process = self.process
        self.groups.ask(request).then(lambda answer: None if process.is_over else reply(answer))

    # The log.

    def maybe_lose_follower(self) -> None:
        """Now and then the follower is not in sync, and the next append is refused."""
        is_lost = self.world.faulty and self.world.random.random() < FAILURE_CHANCE
        self.process.partition.isr = (LEADER,) if is_lost else (LEADER, FOLLOWER)

    def _appended(self, records: memoryview) -> None:
        self._note(bytes(records))
        process, end = self.process, self.log.log_end_offset
        self.ends.append(end)
        self.world.after(
            self.world.random.randint(0, REPLICATION_MS_MAX), lambda: self._replicated(process, end)
        )

    def _replicated(self, process: Process, end: int) -> None:
        if process.is_over or not process.partition.is_leader:
            return
        partition = process.partition
        partition.isr = (LEADER, FOLLOWER)
        assert partition.leadership is not None
        progress = partition.leadership.followers[FOLLOWER]
        partition.follower_fetched(FOLLOWER, max(end, progress.end_offset))
        self.waiting.wake(partition.topic, partition.partition)

    def _note(self, data: bytes) -> None:
        """Keep the last stored offset of each partition, which must never go back."""
        for position, header in batches.iter_batches(data):
            for record in batches.decode_records(data, position, header):
                key = decode_key(record.key or b"")
                if isinstance(key, OffsetKey) and record.value is not None:
                    offset = decode_offset_value(record.value).offset
                    before = self.stored.get(key.partition, -1)
                    assert offset >= before, (
                        f"partition {key.partition}: offset {before} goes back to {offset}"
                    )
                    self.stored[key.partition] = offset

    # What happens to it.

    def crash(self) -> None:
        """Lose memory, parked requests and some of what was not yet replicated; a new leader loads what is left."""
        if self.is_down or self.groups._runtime.is_loading:
            return
        self.check_replay()
        kept = self.world.random.choice([end for end in self.ends if end >= self.log.high_watermark])
        self.world.tell(f"coordinator crashes, keeps {kept} of {self.log.log_end_offset} records")
        self.process.is_over = self.is_down = True
        self.world.after(self.world.random.randint(100, 4_000), lambda: self._come_back(kept))

    def _come_back(self, kept: int) -> None:
        self.is_down = False
        self.ends = [end for end in self.ends if end <= kept]
        self._begin_life(kept)
        self.stored = {}
        size = max(self.log.size, 1)
        self._note(self.log.read(0, size_max=size, upper_offset=self.log.log_end_offset).read())

    def change_epoch(self) -> None:
        """The controller names this broker again, or another one for a moment."""
        if self.is_down or self.groups._runtime.is_loading:
            return
        self.epoch += 1
        if self.world.random.random() < 0.5:
            self.check_replay()
            self.world.tell("coordinator is deposed")
            self.process.lead(FOLLOWER, self.epoch)
            self.epoch += 1
            self.process.soon_ms_max = LOAD_MS_MAX
        else:
            self.world.tell("coordinator leads on")
        self.process.lead(LEADER, self.epoch)
        process, end = self.process, self.log.log_end_offset
        self.world.after(
            self.world.random.randint(0, REPLICATION_MS_MAX), lambda: self._replicated(process, end)
        )

    def check_replay(self) -> None:
        """What the shard knows is what its log says."""
        kind = GroupKind(CONFIG)
        replayed = kind.shard()
        loader = kind.loader(self.log, replayed)
        while not loader.load_slice():
            pass
        live, stored = self.shard().groups.get(GROUP), replayed.groups.get(GROUP)
        live_offsets, stored_offsets = live and live.offsets, stored and stored.offsets
        assert (live_offsets or {}) == (stored_offsets or {}), "memory has offsets that the log has not"
        if live is not None and live.is_stable:
            assert stored is not None
            assert (live.generation, live.leader) == (stored.generation, stored.leader)
            assert {m.member_id: m.assignment for m in live.members.values()}.items() <= {
                m.member_id: m.assignment for m in stored.members.values()
            }.items()
