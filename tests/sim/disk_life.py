"""One partition on a faulty disk, as every simulation of the log lives with it: open, flush, roll, die."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from faulty_files import Died, FaultyFiles
from log_kit import roll

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import RecoveryReport
from headrace.broker.log.startup import open_logs
from headrace.broker.log.store import LogStore

DATA = "/data"


class Hazards(NamedTuple):
    """How a life goes: time between two steps, the chance of a death within some operations, and of one at once."""

    pause_ms_max: int
    death_chance: float
    operations_max: int
    crash_chance: float


class DiskLife:
    """`files` is the disk, `log` the partition `events-0` of `store`; a new start replaces both of these."""

    store: LogStore
    log: PartitionLog

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.files = FaultyFiles()
        self.now_ms = 1_000_000

    def live(self, steps: int, hazards: Hazards, step: Callable[[], None], crash: Callable[[], None]) -> None:
        """Take steps; whoever dies in one, or between two, crashes."""
        for _ in range(steps):
            self.now_ms += self.random.randint(0, hazards.pause_ms_max)
            if self.random.random() < hazards.death_chance:
                self.files.operations_left = self.random.randint(0, hazards.operations_max)
            try:
                step()
            except Died:
                crash()
            assert self.log.is_at_rest or self.log in self.log.restless, "the next flush must find it"
            if self.random.random() < hazards.crash_chance:
                crash()
        self.files.operations_left = None

    def start(self, config: LogConfig) -> list[RecoveryReport]:
        """Open the store, and the log in it."""
        self.store, reports = open_logs(
            self.files,
            [DATA],
            config,
            broker_id=1,
            cluster_id="simulation",
            overrides=lambda _: {},
            now_ms=self.now_ms,
        )
        self.log = self.store.create("events", 0, None, now_ms=self.now_ms)
        return reports

    def flush(self) -> None:
        """What the broker does once a second."""
        task = self.log.flush_task()
        if task is not None:
            self.log.flushed(task())
        self.store.checkpoint()

    def roll(self) -> None:
        """A new segment."""
        roll(self.log, self.now_ms)

    def die(self) -> bool:
        """The end of the process, more often than not together with the power: then True."""
        loses_power = self.random.random() < 0.6
        if loses_power:
            self.files.crash(self.random)
        else:
            self.files.kill()
        return loses_power
