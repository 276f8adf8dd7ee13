"""A log that moves between data directories while it is in use, through deaths and power cuts at any operation.

The simulation keeps its own list of batches and of what was synced, and compares it with the log after every crash and
after every move.
"""

from __future__ import annotations

from random import Random

from faulty_files import Died, FaultyFiles

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.appender import Appender
from headrace.broker.log.moving import Steps
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.startup import open_logs
from headrace.broker.log.store import LogStore
from headrace.broker.wire.batches import Record, encode_batch, set_base_offset_and_epoch

KEY = ("events", 0)
FOLDERS = ("/a", "/b", "/c")
Batch = tuple[int, int, bytes]
"""Base offset, next offset, bytes."""


class MoveSimulation:
    """One seed's life."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.files = FaultyFiles()
        self.now_ms = 1_000_000
        self.epoch = 0
        self.config = LogConfig(
            segment_bytes=self.random.choice((700, 3000)),
            segment_index_bytes=240,
            index_interval_bytes=300,
            retention_ms=-1,
            file_delete_delay_ms=100,
        )
        self.batches: list[Batch] = []
        # What the log may hold instead after a crash: an append or a truncation may have come to pass or not.
        self.alternative: list[Batch] = []
        self.synced_end = 0
        self.moves_done = 0
        self.steps: Steps | None = None
        self.store: LogStore
        self.log: PartitionLog
        self._open()

    def run(self, count: int) -> None:
        """Live, die, come back; then finish what is under way."""
        for _ in range(count):
            self.now_ms += self.random.randint(0, 60)
            if self.random.random() < 0.08:
                self.files.operations_left = self.random.randint(0, 25)
            try:
                self._step()
            except Died:
                self._crash()
            if self.random.random() < 0.02:
                self._crash()
        self.files.operations_left = None
        self._finish_move()
        self.store.close()
        self._open()
        self._check(self.batches)
        assert self._live_folders() == [self.log.directory]

    def _step(self) -> None:
        usual = (self._append, self._append, self._move, self._move, self._move, self._flush)
        rare = (self._truncate, self._delete_before, self._begin_move, self._cancel, self._tidy, self._stop)
        self.random.choice(usual if self.random.random() < 0.8 else rare)()

    def _open(self) -> None:
        self.steps = None
        self.store, _ = open_logs(
            self.files,
            FOLDERS,
            self.config,
            broker_id=1,
            cluster_id="simulation",
            overrides=lambda _: {},
            now_ms=self.now_ms,
        )
        self.log = self.store.create(*KEY, None, now_ms=self.now_ms)
        self.log.advance_high_watermark(self.log.log_end_offset)
        if self.store.moves.target(KEY) is not None:
            self.steps = self.store.moves.steps(KEY, lambda: self.now_ms)
        # A power cut undoes that a segment's indexes were cut when it was sealed; whoever looks one up makes it anew.
        uncut = {path.rpartition("/")[2] for path in self._uncut_indexes()}
        logs = [name for name in self.files.list(self.log.directory) if name.endswith(".log")]
        active = max(logs, default="")[:20]
        self.uncut_before = {name for name in uncut if name[:20] < active}

    # -- what happens

    def _append(self) -> None:
        offset = self.log.log_end_offset
        records = [Record(0, self.now_ms, None, self.random.randbytes(self.random.randint(0, 200)), [])]
        data = encode_batch(records * self.random.randint(1, 3))
        self.epoch += self.random.random() < 0.1
        sent = bytearray(data)
        set_base_offset_and_epoch(data, 0, offset, self.epoch)
        batch = (offset, offset + data[26] + 1, bytes(data))
        self.alternative = [*self.batches, batch]
        Appender(self.log).append_as_leader(memoryview(sent), leader_epoch=self.epoch, now_ms=self.now_ms)
        self.batches = self.alternative
        self.log.advance_high_watermark(self.log.log_end_offset)

    def _flush(self) -> None:
        task = self.log.flush_task()
        if task is not None:
            self.log.flushed(task())
        self.store.checkpoint()
        self.synced_end = max(self.synced_end, self.log.recovery_point)

    def _truncate(self) -> None:
        """A follower finds that the new leader has less."""
        kept = [batch for batch in self.batches[:-2] if batch[1] > self.log.log_start_offset]
        if kept:
            end_offset = kept[-1][1]
            self.synced_end = min(self.synced_end, end_offset)
            self.alternative, self.batches = self.batches, self.batches[:-2]
            self.store.truncate_at_once(self.log, end_offset)
            self.alternative = self.batches
            self.epoch += 1

    def _delete_before(self) -> None:
        if self.batches:
            self.log.delete_before(max(self.random.choice(self.batches)[0], self.log.log_start_offset))
            self.log.delete_retired(self.now_ms)
            self.store.checkpoint()

    def _begin_move(self) -> None:
        if self.store.moves.target(KEY) is None:
            target = self.random.choice([f for f in FOLDERS if not self.log.directory.startswith(f)])
            opening = self.store.moves.begin(KEY, target, self.now_ms)
            opening.run()
            for job in self.store.name_syncs([opening]):
                job()
            self.store.moves.begun(opening)
            self.steps = self.store.moves.steps(KEY, lambda: self.now_ms)

    def _move(self) -> None:
        """Some jobs of the move, appends going on in between."""
        for _ in range(self.random.randint(1, 6)):
            if self.steps is None:
                self._begin_move()
                return
            try:
                job = next(self.steps)
            except StopIteration as end:
                self._move_ended(is_over=end.value)
                return
            if self.random.random() < 0.3:
                self._append()
            job()

    def _move_ended(self, *, is_over: bool) -> None:
        self.steps = None
        if is_over:
            self.moves_done += 1
            self._check(self.batches)
        else:
            self.store.moves.cancel(KEY, self.now_ms)()

    def _cancel(self) -> None:
        if self.steps is not None and self.random.random() < 0.3:
            self.steps.close()
            self.steps = None
            self.store.moves.cancel(KEY, self.now_ms)()

    def _tidy(self) -> None:
        for job in self.store.removals(self.now_ms):
            job()

    def _stop(self) -> None:
        if self.steps is not None:
            self.steps.close()
        self.store.close()
        self._check_clean()
        self.synced_end = self.log.log_end_offset
        if self.random.random() < 0.5:
            self.files.crash(self.random)
        self._open()
        self._check(self.batches)

    def _finish_move(self) -> None:
        while self.store.moves.target(KEY) is not None:
            if self.steps is None:
                self.steps = self.store.moves.steps(KEY, lambda: self.now_ms)
            self._move()

    # -- what must be true

    def _crash(self) -> None:
        loses_power = self.random.random() < 0.6
        if loses_power:
            self.files.crash(self.random)
        else:
            self.files.kill()
        start_floor = self.log.log_start_offset
        self._open()
        candidates = [self.batches, self.alternative]
        held = next((c for c in candidates if self._is_prefix(c)), None)
        assert held is not None, "the log holds what was never written, or has a hole"
        end_offset = self.log.log_end_offset
        if loses_power:
            assert end_offset >= min(self.synced_end, self.batches[-1][1] if self.batches else 0), "lost"
        else:
            assert any(not c or end_offset >= c[-1][1] for c in candidates), "lost without a power cut"
        assert self.log.log_start_offset <= start_floor
        self.batches = self.alternative = [batch for batch in held if batch[1] <= end_offset]
        self.synced_end = min(self.synced_end, end_offset)
        # Whoever starts again leads, or follows, in a new epoch.
        self.epoch = max(self.epoch, self.log.latest_epoch) + 1

    def _is_prefix(self, batches: list[Batch]) -> bool:
        end_offset = self.log.log_end_offset
        expected = [b for b in batches if self.log.log_start_offset < b[1] <= end_offset]
        is_whole = not expected or expected[-1][1] == end_offset
        return is_whole and read_all(self.log) == b"".join(data for _, _, data in expected)

    def _check(self, batches: list[Batch]) -> None:
        assert self._is_prefix(batches), "the log is not what was written"
        assert not batches or self.log.log_end_offset == batches[-1][1]

    def _check_clean(self) -> None:
        """Apache Kafka starts on what a clean stop left: no two folders of a name, no index that is not cut."""
        folders = self._live_folders()
        assert len([folder for folder in folders if folder.endswith("/events-0")]) == 1
        uncut = {path.rpartition("/")[2] for path in self._uncut_indexes()}
        assert uncut <= self.uncut_before

    def _uncut_indexes(self) -> list[str]:
        paths = [f"{folder}/{name}" for folder in self._live_folders() for name in self.files.list(folder)]
        return [path for path in paths if path.endswith("index") and self.files.read(path).endswith(bytes(8))]

    def _live_folders(self) -> list[str]:
        return [
            f"{folder}/{name}"
            for folder in FOLDERS
            for name in self.files.list(folder)
            if name.startswith("events-0") and not name.endswith("-delete")
        ]


def read_all(log: PartitionLog) -> bytes:
    """Every batch from the one that holds the log start offset on."""
    found, offset = bytearray(), log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, size_max=1 << 20, upper_offset=log.log_end_offset).read()
        if not data:
            break
        found += data
        position = 0
        while position < len(data):
            base = int.from_bytes(data[position : position + 8], "big")
            offset = base + int.from_bytes(data[position + 23 : position + 27], "big") + 1
            position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return bytes(found)
