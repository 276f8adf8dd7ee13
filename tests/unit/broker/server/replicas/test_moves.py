"""Slow disks and other data directories: what goes on meanwhile, what is given up, what goes on after a restart."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from log_kit import NOW_MS, append, batch, offsets
from replica_kit import ScriptedHost

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import ErrorCode, NotLeaderOrFollowerError
from headrace.broker.handlers import k35_describe_log_dirs
from headrace.broker.log.files import OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.startup import open_logs
from headrace.broker.replication.control_requests import LeaderAndIsr, StopReplica, ToldStop
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.replicas.hosted import Partitions
from headrace.broker.server.replicas.moves import ReplicaMoves
from headrace.broker.tasks import Tasks

TOPIC_ID = UUID(int=7)
KEY = ("events", 0)


class Clock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return NOW_MS


class GatedFiles(OsFiles):
    """Files that make no folder of partition 9 and rename no copy before the gate is open; `reached`: somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.is_dead = False

    def make_directory(self, path: str) -> None:
        if path.endswith("-9"):
            self._wait()
        super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        if source.endswith("-future"):
            self._wait()
        if self.is_dead:
            raise OSError(errno.EIO, "Input/output error")
        super().rename(source, target)

    def _wait(self) -> None:
        self.reached.set()
        assert self.gate.wait(10), "nothing else came to pass meanwhile"


class Broker:
    """The parts of one broker around its data directories `a`, `b` and `c`."""

    def __init__(self, home: Path, files: OsFiles | None = None) -> None:
        self.paths = [str(home / name) for name in "abc"]
        self.logs, _ = open_logs(
            files or OsFiles(),
            self.paths,
            LogConfig(segment_bytes=2000, file_delete_delay_ms=0),
            broker_id=1,
            cluster_id="c",
            overrides=lambda _: {},
            now_ms=NOW_MS,
        )
        self.tasks = Tasks()
        self.metadata = MetadataCache()
        self.partitions = Partitions(ScriptedHost(), self.logs, self.metadata, Clock())
        self.moves = ReplicaMoves(self.logs, self.partitions, Clock(), self.tasks, threads=2)

    async def lead(self, epoch: int = 0, *, is_new: bool = False, partition: int = 0) -> PartitionLog:
        state = {
            "partition_index": partition,
            "controller_epoch": 1,
            "leader": 1,
            "leader_epoch": epoch,
            "isr": [1],
            "partition_epoch": 0,
            "replicas": [1],
            "is_new": is_new,
        }
        topic = {"topic_name": "events", "topic_id": TOPIC_ID, "partition_states": [state]}
        await self.partitions.leader_and_isr(
            LeaderAndIsr.of({"controller_id": 1, "controller_epoch": 1, "topic_states": [topic]})
        )
        return self.partitions.leader_of("events", partition).log

    async def moved(self) -> None:
        await asyncio.gather(*self.moves._running.values())
        assert self.logs.moves.target(KEY) is None

    def path_of(self, log: PartitionLog) -> str:
        return log.directory.rpartition("/")[0]

    def described(self) -> list[tuple[str, bool, int]]:
        """(directory, is a copy, lag) of each replica."""
        context: Any = SimpleNamespace(
            config=SimpleNamespace(log_dirs=self.paths), partitions=self.partitions, authorizer=None
        )
        answer = k35_describe_log_dirs.handle(context, cast(Any, None), {"topics": None})
        return [
            (Path(result["log_dir"]).name, partition["is_future_key"], partition["offset_lag"])
            for result in answer["results"]
            for topic in result["topics"]
            for partition in topic["partitions"]
        ]

    def folders(self) -> list[str]:
        return sorted(
            f"{Path(path).name}/{folder.name.split('.')[0]}"
            for path in self.paths
            for folder in Path(path).glob("events-0*")
            if not folder.name.endswith("-delete")
        )


async def filled(broker: Broker, count: int = 30) -> PartitionLog:
    log = await broker.lead(is_new=True)
    for _ in range(count):
        append(log, batch(2, size=100))
    return log


def test_other_partitions_are_served_while_a_disk_is_slow_to_make_a_log(tmp_path: Path) -> None:
    async def script() -> None:
        files = GatedFiles()
        broker = Broker(tmp_path, files)
        log = await filled(broker)
        files.gate.clear()

        async def serve() -> None:
            assert await asyncio.to_thread(files.reached.wait, 10)
            with pytest.raises(NotLeaderOrFollowerError):
                broker.partitions.leader_of("events", 9)
            append(log, batch())
            assert broker.partitions.leader_of(*KEY).log.log_end_offset == 61
            files.gate.set()

        made, _ = await asyncio.gather(broker.lead(partition=9, is_new=True), serve())
        assert (made.partition, made.latest_epoch, made.topic_id) == (9, 0, TOPIC_ID)

    asyncio.run(script())


def test_a_log_moves_and_those_who_hold_it_notice_nothing(tmp_path: Path) -> None:
    async def script() -> None:
        broker = Broker(tmp_path)
        log = await filled(broker)
        before = offsets(log)
        reader = log.read(0, size_max=500, upper_offset=log.log_end_offset)
        assert await broker.moves.alter({KEY: broker.paths[1]}) == {KEY: ErrorCode.NONE}
        append(log, batch(2))
        await broker.moved()
        await broker.tasks.stop()
        assert broker.partitions.leader_of(*KEY).log is log is broker.logs.get(*KEY)
        assert (broker.path_of(log), broker.folders()) == (broker.paths[1], ["b/events-0"])
        assert (offsets(log), log.high_watermark, log.topic_id) == ([*before, 60], 62, TOPIC_ID)
        assert reader.read()[:8] == bytes(8), "what was being read is still there"
        append(log, batch(2))
        assert broker.described() == [("b", False, 0)]

    asyncio.run(script())


async def held_up_in_a_move(broker: Broker, files: GatedFiles) -> PartitionLog:
    """A filled log on its way to the second directory, where the gate holds it up."""
    log = await filled(broker)
    files.gate.clear()
    await broker.moves.alter({KEY: broker.paths[1]})
    assert await asyncio.to_thread(files.reached.wait, 10)
    return log


def test_a_copy_is_shown_with_its_lag_and_given_up_for_another_directory(tmp_path: Path) -> None:
    async def script() -> None:
        files = GatedFiles()
        broker = Broker(tmp_path, files)
        log = await held_up_in_a_move(broker, files)
        append(log, batch(2))
        assert broker.described() == [("a", False, 0), ("b", True, 2)]
        changing = broker.moves.alter({KEY: broker.paths[2]})
        files_open = asyncio.to_thread(files.gate.set)
        answer, _ = await asyncio.gather(changing, files_open)
        assert answer == {KEY: ErrorCode.NONE}
        await broker.moved()
        await broker.tasks.stop()
        assert (broker.path_of(log), broker.folders()) == (broker.paths[2], ["c/events-0"])
        assert log.log_end_offset == 62

    asyncio.run(script())


def test_a_log_moves_on_while_its_last_move_is_being_settled(tmp_path: Path) -> None:
    class SettlingFiles(GatedFiles):
        def rename(self, source: str, target: str) -> None:
            OsFiles.rename(self, source, target)

        def remove(self, path: str) -> None:
            if path.endswith("/.successor"):
                self._wait()
            super().remove(path)

    async def script() -> None:
        files = SettlingFiles()
        broker = Broker(tmp_path, files)
        log = await held_up_in_a_move(broker, files)
        assert await broker.moves.alter({KEY: broker.paths[2]}) == {KEY: ErrorCode.NONE}
        await asyncio.sleep(0)
        assert [task.get_name() for task in asyncio.all_tasks()].count("move-events-0") == 1
        files.gate.set()
        await broker.moved()
        await broker.tasks.stop()
        assert (broker.path_of(log), broker.folders()) == (broker.paths[2], ["c/events-0"])
        assert (log.log_end_offset, broker.logs.offline) == (60, {})

    asyncio.run(script())


def test_asking_for_the_present_directory_gives_a_move_up(tmp_path: Path) -> None:
    async def script() -> None:
        files = GatedFiles()
        broker = Broker(tmp_path, files)
        log = await held_up_in_a_move(broker, files)
        staying = broker.moves.alter({KEY: broker.paths[0]})
        await asyncio.gather(staying, asyncio.to_thread(files.gate.set))
        await broker.tasks.stop()
        assert (broker.path_of(log), broker.folders()) == (broker.paths[0], ["a/events-0"])
        assert not log.cleaner.is_paused

    asyncio.run(script())


def test_a_move_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def begin() -> None:
        files = GatedFiles()
        broker = Broker(tmp_path, files)
        await held_up_in_a_move(broker, files)
        assert broker.folders() == ["a/events-0", "b/events-0"]
        # The process dies before the copy gets its name.
        files.is_dead = True
        files.gate.set()
        await broker.tasks.stop()
        assert broker.folders() == ["a/events-0", "b/events-0"]

    async def go_on() -> None:
        broker = Broker(tmp_path)
        log = await broker.lead(epoch=1)
        await broker.moved()
        await broker.tasks.stop()
        assert (broker.path_of(log), broker.folders()) == (broker.paths[1], ["b/events-0"])
        assert (log.log_end_offset, log.latest_epoch) == (60, 1)

    asyncio.run(begin())
    asyncio.run(go_on())


def test_a_deleted_partition_leaves_no_copy_behind(tmp_path: Path) -> None:
    async def script() -> None:
        files = GatedFiles()
        broker = Broker(tmp_path, files)
        await held_up_in_a_move(broker, files)
        stopping = broker.partitions.stop_replica(
            StopReplica(controller_id=1, controller_epoch=1, replicas=(ToldStop("events", 0, -2, True),))
        )
        response, _ = await asyncio.gather(stopping, asyncio.to_thread(files.gate.set))
        assert [e["error_code"] for e in response["partition_errors"]] == [ErrorCode.NONE]
        assert (broker.folders(), broker.described()) == ([], [])
        for job in broker.logs.removals(NOW_MS):
            job()
        left = [name for path in broker.paths for name in OsFiles().list(path) if name.startswith("events")]
        assert left == []
        await broker.tasks.stop()

    asyncio.run(script())


@pytest.mark.parametrize("kind", ["unknown", "failed", "long"])
def test_what_cannot_be_moved_says_why(tmp_path: Path, kind: str) -> None:
    async def script() -> None:
        broker = Broker(tmp_path)
        log = await filled(broker)
        if kind == "unknown":
            wanted = {KEY: str(tmp_path / "d"), ("nothing", 0): broker.paths[1]}
            expected = [ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        elif kind == "failed":
            broker.logs.failed(broker.paths[2], OSError(5, "Input/output error"))
            wanted = {KEY: broker.paths[2], ("events", 0): broker.paths[1]}
            expected = [ErrorCode.KAFKA_STORAGE_ERROR]
        else:
            wanted = {("t" * 230, 0): broker.paths[1]}
            expected = [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert list((await broker.moves.alter(wanted)).values()) == expected
        await broker.tasks.stop()
        assert (broker.path_of(log), broker.folders()) == (broker.paths[0], ["a/events-0"])

    asyncio.run(script())


def test_a_request_that_names_many_bad_replicas_is_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script() -> None:
        broker = Broker(tmp_path)
        await filled(broker)
        wanted = {("n" * 20_000, number): "/" + "d" * 20_000 for number in range(500)}
        codes = await broker.moves.alter({**wanted, KEY: str(tmp_path / "d")})
        assert ErrorCode.NONE not in codes.values()
        await broker.tasks.stop()

    asyncio.run(script())
    (line,) = [vars(record)["facts"] for record in caplog.records if record.levelname == "WARNING"]
    assert line["count"] == 501
    assert line["first"].startswith("nnn")
    assert len(str(line)) < 1000


def test_a_request_that_is_given_up_ends_when_no_thread_makes_its_logs_any_more(tmp_path: Path) -> None:
    async def script() -> None:
        files = GatedFiles()
        broker = Broker(tmp_path, files)
        files.gate.clear()
        given_up = broker.tasks.start("given up", broker.lead(partition=9, is_new=True))
        assert await asyncio.to_thread(files.reached.wait, 10)
        given_up.cancel()
        again = broker.tasks.start("again", broker.lead(epoch=1, partition=9, is_new=True))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not given_up.done()
        files.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await again
        made = broker.partitions.leader_of("events", 9).log
        assert (made.latest_epoch, made.topic_id, broker.logs.offline) == (1, TOPIC_ID, {})
        await broker.tasks.stop()

    asyncio.run(script())
