"""The log under a disk that tears writes and forgets unsynced ones; with a safety rule off, some seed notices."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from faulty_files import Died, FaultyFiles
from log_simulation import LogSimulation, scan
from long_runs import first_of

from headrace.broker.errors import KafkaError
from headrace.broker.log import recovery, soundness
from headrace.broker.log.flushing import Flusher
from headrace.broker.log.index import IndexFile
from headrace.broker.log.segment import Segment
from headrace.broker.log.snapshots import ProducerSnapshots

SEEDS = 120
STEPS = 120


@pytest.mark.parametrize("block", first_of(1, range(4)))
def test_a_leaders_log_survives_every_crash(block: int) -> None:
    for seed in range(block, SEEDS, 4):
        LogSimulation(seed).run(STEPS)


@pytest.mark.parametrize("block", first_of(1, range(4)))
def test_a_mirrors_log_survives_every_crash(block: int) -> None:
    for seed in range(block, SEEDS, 4):
        LogSimulation(seed, is_mirror=True).run(STEPS)


@pytest.mark.parametrize("operations", range(5))
def test_a_clean_stop_is_forgotten_by_a_start_that_was_killed(operations: int) -> None:
    for seed in range(10):
        simulation = LogSimulation(seed)
        simulation._append()
        simulation.store.close()
        simulation.files.operations_left = operations
        with suppress(Died):
            simulation._open()
        simulation.files.kill()
        simulation._open()
        simulation.files.crash(simulation.random)
        assert not simulation.files.exists("/data/.kafka_cleanshutdown")


@pytest.mark.parametrize("operations", range(8))
def test_what_a_killed_truncation_took_never_comes_back(operations: int) -> None:
    for seed in range(20):
        simulation = LogSimulation(seed)
        while len(simulation.batches) < 8:
            simulation._append()
        simulation._flush()
        taken = simulation.batches[-4:]
        simulation.files.operations_left = operations
        with suppress(Died):
            simulation.store.truncate_at_once(simulation.log, taken[0].base_offset)
        simulation.files.kill()
        simulation._open()
        if simulation.log.log_end_offset != taken[0].base_offset:
            continue
        simulation.batches = simulation.batches[:-4]
        simulation._learn_sequences()
        simulation._append()
        simulation.files.crash(simulation.random)
        assert not {batch.data for batch in taken} & set(scan(simulation.files))


def _no_fsync_before_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Flusher, "_job", lambda self, end_offset: lambda: end_offset)


def _no_directory_sync(patch: pytest.MonkeyPatch) -> None:
    sync_directory = FaultyFiles.sync_directory

    def only_the_data_directory(files: FaultyFiles, path: str) -> None:
        if path == "/data":
            sync_directory(files, path)

    patch.setattr(FaultyFiles, "sync_directory", only_the_data_directory)


def _no_checksum_in_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(soundness, "_crc", lambda segment, position, header: header.crc)


def _no_index_rebuilt(patch: pytest.MonkeyPatch) -> None:
    def believe(segment: Segment, offset: int) -> int:
        return segment.index.lookup(offset)[1]

    patch.setattr(IndexFile, "clear", lambda self: None)
    patch.setattr(Segment, "_indexed_position", believe)


def _segments_behind_a_lost_tail_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery._Loading, "_continues", lambda self, segment, following: True)


def _torn_write_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "_cut_torn_write", lambda self, file: None)


def _cut_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    def cut(loading: recovery._Loading, segment: Segment, position: int, problem: str) -> None:
        segment.size = position

    patch.setattr(recovery._Loading, "_cut", cut)


def _truncation_keeps_the_recovery_point(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Flusher, "log_ends_at", lambda self, offset: None)


def _snapshots_replace_the_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("headrace.broker.log.snapshots.replay", lambda *_, **__: None)


def _snapshots_above_the_end_are_believed(patch: pytest.MonkeyPatch) -> None:
    newest = ProducerSnapshots._newest
    patch.setattr(ProducerSnapshots, "_forget_above", lambda self, end: None)
    patch.setattr(ProducerSnapshots, "_newest", lambda self, start, upto: newest(self, start, 2**62))


@pytest.mark.parametrize(
    "break_rule",
    [
        _no_fsync_before_the_checkpoint,
        _no_directory_sync,
        _no_checksum_in_recovery,
        _no_index_rebuilt,
        _segments_behind_a_lost_tail_stay,
        _torn_write_stays,
        _cut_is_not_synced,
        _truncation_keeps_the_recovery_point,
        _snapshots_replace_the_replay,
        _snapshots_above_the_end_are_believed,
    ],
)
def test_without_a_safety_rule_some_seed_fails(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    assert any(_fails(seed, is_mirror) for seed in range(SEEDS) for is_mirror in (False, True))


def _fails(seed: int, is_mirror: bool) -> bool:
    try:
        LogSimulation(seed, is_mirror=is_mirror).run(STEPS)
    except (AssertionError, KafkaError):
        return True
    return False
