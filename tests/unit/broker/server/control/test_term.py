"""What a controller writes, against a simulated ZooKeeper: together, divided, interrupted, too late."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import pytest
from ensemble import Ensemble, SimulatedKazoo
from virtual_time import VirtualLoop

from headrace.broker.errors import UnknownServerError
from headrace.broker.replication.events import StatesWritten, StateWrite
from headrace.broker.replication.model import PartitionState
from headrace.broker.server.control import term
from headrace.broker.server.control.term import ControllerMovedError, Term
from headrace.broker.server.membership.producer_ids import begin_of_ids
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient

COUNT = 250


class World:
    """A term, and the transactions that ZooKeeper was asked for."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.ensemble = Ensemble(loop, random.Random(1))
        self.kazoo = SimulatedKazoo(self.ensemble, 6.0)
        self.sizes: list[int] = []
        self.reads: list[str] = []
        self.before: Callable[[], None] = lambda: None
        commit, get = self.kazoo.commit, self.kazoo.get_many_async

        def counted(operations: list[tuple[Any, ...]]) -> Any:
            self.sizes.append(len(operations) - 1)
            before, self.before = self.before, lambda: None
            result = commit(operations)
            before()
            return result

        def read(paths: Sequence[str]) -> Any:
            self.reads += paths
            return get(paths)

        self.kazoo.commit, self.kazoo.get_many_async = counted, read  # type: ignore[method-assign]

    async def begin(self) -> Term:
        client = ZooKeeperClient(
            "", session_timeout_ms=6000, connection_timeout_ms=6000, make_kazoo=lambda *_: self.kazoo
        )
        await client.connect()
        await client.create(paths.CONTROLLER_EPOCH, b"1")
        await client.create(paths.topic("t"))
        return Term(client, epoch_version=0)

    def found(self, partition: int) -> PartitionState:
        path = paths.partition_state("t", partition)
        znode = self.ensemble.znodes[path]
        return paths.decode_partition_state(path, znode.data, znode.version)


def state(leader: int, version: int = 0) -> PartitionState:
    return PartitionState(
        leader=leader, leader_epoch=version, isr=(1, 2), controller_epoch=1, zk_version=version
    )


def writes(
    leader: int, *, create: bool = False, partitions: Iterable[int] = range(COUNT)
) -> list[StateWrite]:
    return [StateWrite(topic="t", partition=p, state=state(leader), create=create) for p in partitions]


def keys(partitions: Iterable[int] = range(COUNT)) -> set[tuple[str, int]]:
    return {("t", p) for p in partitions}


def run(script: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    with VirtualLoop() as loop:
        loop.run_until_complete(script(World(loop)))


def test_many_states_are_few_transactions_and_nothing_is_read_back() -> None:
    async def script(world: World) -> None:
        writer = await world.begin()
        outcome = await writer.write_states(writes(1, create=True))
        assert outcome == StatesWritten(written={key: state(1) for key in keys()})
        assert world.sizes == [1, 100, 100, 50, 100, 100, 50]
        world.sizes.clear()
        outcome = await writer.write_states(writes(2))
        assert {s.zk_version for s in outcome.written.values()} == {1}
        assert (set(outcome.written), outcome.conflicts) == (keys(), {})
        assert world.sizes == [100, 100, 50]
        assert world.reads == []
        assert [world.found(p) for p in range(COUNT)] == [outcome.written["t", p] for p in range(COUNT)]

    run(script)


def test_a_state_that_somebody_changed_is_told_and_the_others_are_written() -> None:
    async def script(world: World) -> None:
        writer = await world.begin()
        await writer.write_states(writes(1, create=True))
        path = paths.partition_state("t", 7)
        theirs = paths.encode_partition_state(state(9))
        world.ensemble.set(path, theirs, -1)
        world.sizes.clear()
        outcome = await writer.write_states(writes(2))
        assert outcome.written.keys() == keys() - {("t", 7)}
        assert outcome.conflicts == {("t", 7): paths.decode_partition_state(path, theirs, 1)}
        assert len(world.sizes) < 20
        assert world.reads == [path]

    run(script)


def test_a_topic_that_is_gone_and_partitions_that_there_are() -> None:
    async def script(world: World) -> None:
        writer = await world.begin()
        await writer.write_states(writes(1, create=True, partitions=[0, 1]))
        gone = StateWrite(topic="gone", partition=0, state=state(1), create=True)
        again = writes(1, create=True, partitions=range(4))
        again[0] = StateWrite(topic="t", partition=0, state=state(5), create=True)
        outcome = await writer.write_states([gone, *again])
        assert outcome.written.keys() == keys([1, 2, 3])
        assert outcome.conflicts == {("gone", 0): None, ("t", 0): state(1)}

    run(script)


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_an_interrupted_write_is_read_back_whether_it_was_performed_or_not(seed: int, create: bool) -> None:
    async def script(world: World) -> None:
        writer = await world.begin()
        if not create:
            await writer.write_states(writes(1, create=True))
        world.ensemble.random.seed(seed)
        world.before = world.kazoo.disconnect
        outcome = await writer.write_states(writes(2, create=create))
        assert (set(outcome.written), outcome.conflicts) == (keys(), {})
        assert {world.found(p) for p in range(COUNT)} == set(outcome.written.values())
        assert {s.leader for s in outcome.written.values()} == {2}

    run(script)


def test_an_interrupted_write_that_fails_for_one_state_is_tried_again_for_the_others() -> None:
    async def script(world: World) -> None:
        writer = await world.begin()
        await writer.write_states(writes(1, create=True))
        world.ensemble.set(paths.partition_state("t", 7), paths.encode_partition_state(state(9)), -1)
        world.before = world.kazoo.disconnect
        outcome = await writer.write_states(writes(2))
        assert (set(outcome.written), set(outcome.conflicts)) == (keys() - {("t", 7)}, {("t", 7)})

    run(script)


def test_nothing_is_written_once_another_controller_was_elected() -> None:
    async def script(world: World) -> None:
        writer = await world.begin()
        await writer.write_states(writes(1, create=True, partitions=[0]))
        world.ensemble.set(paths.CONTROLLER_EPOCH, b"2", -1)
        for attempt in (writes(2, partitions=[0]), writes(2, create=True, partitions=[1])):
            with pytest.raises(ControllerMovedError):
                await writer.write_states(attempt)
        with pytest.raises(ControllerMovedError):
            await writer.delete(paths.topic("t"))
        assert world.found(0) == state(1)
        assert paths.partition_state("t", 1) not in world.ensemble.znodes

    run(script)


def test_a_transaction_of_the_longest_names_fits_into_a_request_to_zookeeper() -> None:
    long = "t" * 249
    write = StateWrite(topic=long, partition=2**31 - 1, state=state(2**31 - 1), create=False)
    operation = term._operation(write)
    assert (len(operation.path) + 300) * term.OPERATIONS_PER_TRANSACTION_MAX < 2**20


def test_blocks_of_producer_ids_follow_each_other_whoever_takes_them() -> None:
    async def script(world: World) -> None:
        writer = await world.begin()
        begin = begin_of_ids("")
        assert await writer.allocate_producer_ids(1) == (begin, 1000)
        assert await writer.allocate_producer_ids(2) == (begin + 1000, 1000)
        newest = world.ensemble.znodes[paths.PRODUCER_ID_BLOCK]
        assert newest.data == paths.encode_producer_id_block(2, begin + 1000, begin + 1999)
        world.ensemble.set(paths.PRODUCER_ID_BLOCK, paths.encode_producer_id_block(9, 7000, 7999), -1)
        assert await writer.allocate_producer_ids(1) == (8000, 1000)

    run(script)


@pytest.mark.parametrize(
    "stored", [b"no JSON", b"{}", paths.encode_producer_id_block(1, 2**63 - 1000, 2**63 - 1)]
)
def test_no_producer_ids_are_given_out_after_what_cannot_be_counted_on(stored: bytes) -> None:
    async def script(world: World) -> None:
        writer = await world.begin()
        await writer.allocate_producer_ids(1)
        world.ensemble.set(paths.PRODUCER_ID_BLOCK, stored, -1)
        with pytest.raises(UnknownServerError):
            await writer.allocate_producer_ids(1)
        assert world.ensemble.znodes[paths.PRODUCER_ID_BLOCK].data == stored

    run(script)


def test_a_controller_of_the_past_gives_out_no_producer_ids() -> None:
    async def script(world: World) -> None:
        writer = await world.begin()
        world.ensemble.set(paths.CONTROLLER_EPOCH, b"2", -1)
        with pytest.raises(ControllerMovedError):
            await writer.allocate_producer_ids(1)

    run(script)
