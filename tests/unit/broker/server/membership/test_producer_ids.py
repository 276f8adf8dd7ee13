"""Producer ids come from blocks of the cluster's, the next of which is fetched in time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from headrace.broker.server.membership.producer_ids import BLOCK_SIZE, ProducerIds, begin_of_ids
from headrace.broker.waiting.deferred import Deferred


def ids_of(blocks: list[tuple[int, int] | Exception]) -> tuple[ProducerIds, list[int]]:
    calls: list[int] = []

    async def allocate() -> tuple[int, int]:
        calls.append(1)
        block = blocks.pop(0)
        if isinstance(block, Exception):
            raise block
        return block

    def run(work: Any) -> Deferred[Any]:
        with pytest.raises(StopIteration):
            work.send(None)
        done: Deferred[Any] = Deferred()
        done.complete(None)
        return done

    return ProducerIds(allocate, run), calls


def test_producer_ids_come_block_after_block_and_the_next_one_is_fetched_in_time() -> None:
    ids, calls = ids_of([(0, 20), (5_000, 20), (9_000, 20)])
    assert ids.next_id() is None, "the first client asks for the first block"
    assert [ids.next_id() for _ in range(18)] == list(range(18))
    assert len(calls) == 1
    assert [ids.next_id() for _ in range(4)] == [18, 19, 5_000, 5_001]
    assert len(calls) == 2


def test_without_a_block_the_client_hears_so_and_the_next_request_tries_again() -> None:
    ids, _ = ids_of([OSError("ZooKeeper is away"), (7, 1), (9, 1)])
    assert [ids.next_id() for _ in range(4)] == [None, None, 7, 9]


def test_one_block_is_fetched_at_a_time() -> None:
    works: list[Any] = []

    async def allocate() -> tuple[int, int]:
        return 0, 1

    def run(work: Any) -> Deferred[Any]:
        works.append(work)
        return Deferred()

    ids = ProducerIds(allocate, run)
    assert [ids.next_id() for _ in range(3)] == [None] * 3
    (work,) = works
    work.close()


def test_the_ids_of_two_clusters_are_never_the_same() -> None:
    """Those of Apache Kafka, from 0 on, neither."""
    begins = sorted({0, *(begin_of_ids(name) for name in ("a", "b", "Zk7jxQ0uTaC1Yv8nB2dE4g", ""))})
    assert len(begins) == 5
    assert all(after - before > BLOCK_SIZE * 1_000_000 for before, after in pairwise(begins))
    assert begins[-1] < 2**53
