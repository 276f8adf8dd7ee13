"""Moves between data directories keep to replica.alter.log.dirs.io.max.bytes.per.second, in virtual time."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from faulty_files import FaultyFiles
from replica_kit import ScriptedHost
from virtual_time import VirtualLoop

from headrace.broker.config.sections import Replication
from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import ErrorCode
from headrace.broker.log.appender import Appender
from headrace.broker.log.startup import open_logs
from headrace.broker.replication.control_requests import LeaderAndIsr
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.replicas.hosted import Partitions
from headrace.broker.server.replicas.moves import ReplicaMoves
from headrace.broker.tasks import Tasks
from headrace.broker.wire.batches import Record, encode_batch

RATE = 10_000
BATCH_SIZE = 2_000
COUNT = 2
SIZE = 100_000
EPOCH_MS = 1_700_000_000_000


class LoopClock:
    """The clock of the virtual loop."""

    def now_ms(self) -> int:
        return EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)

    monotonic_ms = now_ms


class Broker:
    """Two partitions of `SIZE` bytes in one of two data directories."""

    def __init__(self, rate: int) -> None:
        self.clock = LoopClock()
        self.logs, _ = open_logs(
            FaultyFiles(),
            ["/a", "/b"],
            LogConfig(segment_bytes=30_000),
            broker_id=1,
            cluster_id="simulation",
            overrides=lambda _: {},
            now_ms=EPOCH_MS,
        )
        partitions = Partitions(ScriptedHost(), self.logs, MetadataCache(), self.clock)
        self.partitions, self.tasks = partitions, Tasks()
        self.moves = ReplicaMoves(self.logs, partitions, self.clock, self.tasks, threads=2)
        self.limit(rate)

    def limit(self, rate: int) -> None:
        self.moves.use_config(Replication(replica_alter_log_dirs_io_max_bytes_per_second=rate))

    async def begin(self) -> None:
        states = [
            {
                "partition_index": number,
                "controller_epoch": 1,
                "leader": 1,
                "leader_epoch": 0,
                "isr": [1],
                "partition_epoch": 0,
                "replicas": [1],
                "is_new": True,
            }
            for number in range(COUNT)
        ]
        topic = {"topic_name": "events", "topic_id": UUID(int=7), "partition_states": states}
        request = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": -1, "topic_states": [topic]}
        await self.partitions.leader_and_isr(LeaderAndIsr.of(request))
        value = b"x" * (BATCH_SIZE - 75)
        for number in range(COUNT):
            log = self.partitions.leader_of("events", number).log
            while log.size < SIZE:
                data = encode_batch([Record(0, EPOCH_MS, None, value, [])])
                Appender(log).append_as_leader(memoryview(data), leader_epoch=0, now_ms=EPOCH_MS)
        homes = {number: self.home(number) for number in range(COUNT)}
        others = {("events", number): "/b" if home == "/a" else "/a" for number, home in homes.items()}
        codes = await self.moves.alter(others)
        assert set(codes.values()) == {ErrorCode.NONE}

    def home(self, number: int) -> str:
        return self.logs.home_of(("events", number)).path

    def copied(self) -> int:
        """Bytes of all copies, finished ones included."""
        unfinished = {log.partition: log.size for log in self.logs.moves.copies()}
        return sum(
            unfinished.get(number, self.partitions.leader_of("events", number).log.size)
            for number in range(COUNT)
        )

    @property
    def is_done(self) -> bool:
        return not list(self.logs.moves.copies())


def run(rate: int, then: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """(seconds, bytes copied) ten times a second until the moves are over; `then` changes the rate at some seconds."""
    found: list[tuple[float, int]] = []

    async def script() -> None:
        broker = Broker(rate)
        await broker.begin()
        start = asyncio.get_running_loop().time()
        while not broker.is_done:
            await asyncio.sleep(0.1)
            elapsed = asyncio.get_running_loop().time() - start
            if then and elapsed >= then[0][0]:
                broker.limit(then.pop(0)[1])
            found.append((elapsed, broker.copied()))
            assert elapsed < 600, "the moves do not come to an end"
        await broker.tasks.stop()

    with VirtualLoop() as loop:
        loop.job_seconds = lambda: 0.001
        loop.run_until_complete(script())
    return found


@pytest.mark.parametrize("rate", [RATE, 50 * RATE, 150])
def test_all_moves_together_keep_to_the_rate_and_use_it(rate: int) -> None:
    found = run(rate, [(300.0, 2**62)] if rate < RATE else [])
    piece = max(rate, BATCH_SIZE + 100)
    limited = [(seconds, copied) for seconds, copied in found if seconds < 300]
    for seconds, copied in limited:
        assert copied <= rate * seconds + COUNT * piece, f"too fast after {seconds} s"
        assert copied >= min(COUNT * SIZE, rate * seconds - COUNT * piece), f"too slow after {seconds} s"
    assert found[-1][1] >= COUNT * SIZE


def test_a_rate_that_is_raised_or_taken_away_holds_at_once() -> None:
    found = run(0, [(5.0, RATE), (10.0, 0), (15.0, 2**63 - 1)])
    at = {round(seconds, 1): copied for seconds, copied in found}
    assert at[5.0] == 0
    assert 3 * RATE <= at[10.0] <= 6 * RATE + COUNT * BATCH_SIZE
    assert at[14.9] - at[10.0] <= COUNT * RATE
    assert found[-1][0] < 17.0
