"""Transactions cut in the middle: which there are, what is counted of them, and ending all of the source's but no other."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, cast
from uuid import UUID

import click
import pytest

from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.wire.api import k27_write_txn_markers, k61_describe_producers
from headrace.broker.wire.batches import Record, encode_batch
from headrace.broker.wire.client.view import NO_LEADER
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.verbs import cut_transactions
from headrace.mirror.verbs.cut_transactions import Cut, counted, end_all, listed

COPY, OTHER = "dc-east.t", "dc-east.u"


class Cluster:
    """Two brokers, each leading a partition of the copy: `open` are the transactions, by partition and producer."""

    def __init__(self) -> None:
        self.leaders = {(COPY, 0): 1, (COPY, 1): 2, (OTHER, 0): 1}
        self.brokers = [1, 2]
        self.topic_ids = dict.fromkeys((COPY, OTHER), UUID(int=1))
        self.open: dict[tuple[str, int], dict[int, int]] = {place: {} for place in self.leaders}
        self.own: dict[int, list[int]] = {}
        self.refusals: list[int] = []
        self.later: dict[int, int] = {}
        self.log = bytearray()
        self.aborted: list[tuple[int, str, int, int]] = []
        self.refreshed = 0

    async def refresh(self) -> None:
        self.refreshed += 1

    async def leader_of(self, topic: str, partition: int) -> int:
        return self.leaders[topic, partition]

    async def serves(self, broker: int, _: Any) -> bool:
        return broker in self.own

    async def log_starts(self, places: Collection[tuple[str, int]]) -> dict[str, int]:
        return {f"{topic}-{partition}": 0 for topic, partition in places}

    async def fetch(self, topic: str, partition: int, offset: int) -> memoryview:
        size = len(self.log) // 6
        return memoryview(self.log[offset * size : (offset + 2) * size])

    async def ask(self, broker: int, api: Any, highest: int, message: dict[str, Any]) -> Any:
        if api is k61_describe_producers.API:
            return {"topics": [self._described(broker, topic) for topic in message["topics"]]}
        if api is k27_write_txn_markers.API:
            return {"markers": [self._ended(broker, marker) for marker in message["markers"]]}
        states = [{"producer_id": producer} for producer in self.own[broker]]
        return {"error_code": 0, "transaction_states": states}

    def _described(self, broker: int, topic: dict[str, Any]) -> dict[str, Any]:
        (index,) = topic["partition_indexes"]
        assert self.leaders[topic["name"], index] == broker
        producers = [
            {
                "producer_id": producer,
                "producer_epoch": 3,
                "coordinator_epoch": -1,
                "current_txn_start_offset": offset,
            }
            for producer, offset in {99: -1, **self.open[topic["name"], index]}.items()
        ]
        told = {"partition_index": index, "error_code": 0, "active_producers": producers}
        return {"name": topic["name"], "partitions": [told]}

    def _ended(self, broker: int, marker: dict[str, Any]) -> dict[str, Any]:
        (topic,) = marker["topics"]
        (index,) = topic["partition_indexes"]
        assert self.leaders[topic["name"], index] == broker
        assert marker["transaction_result"] is False
        code = self.refusals.pop(0) if self.refusals else 0
        if not code:
            del self.open[topic["name"], index][marker["producer_id"]]
            told = marker["producer_id"], topic["name"], index, marker["coordinator_epoch"]
            self.aborted.append(told)
            self.open[topic["name"], index] |= self.later
            self.later = {}
        partitions = [{"partition_index": index, "error_code": code}]
        topics = [{"name": topic["name"], "partitions": partitions}]
        return {"producer_id": marker["producer_id"], "topics": topics}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(cut_transactions, "LOOK_SECONDS", 0)
    return Cluster()


def looked(cluster: Cluster, *, of_source: bool = True) -> list[tuple[str, int, int, int]]:
    client = cast("ClusterClient", cluster)
    return [cut.place for cut in asyncio.run(listed(client, [COPY], lambda cut: of_source))]


def ended(cluster: Cluster, *known: Cut, timeout_seconds: float = 30) -> int:
    return asyncio.run(end_all(cast("ClusterClient", cluster), [COPY], known, timeout_seconds))


def cut(producer: int, first_offset: int, partition: int = 0) -> Cut:
    return Cut(
        topic=COPY,
        partition=partition,
        producer_id=producer,
        epoch=3,
        coordinator_epoch=0,
        first_offset=first_offset,
    )


def test_open_transactions_are_listed_of_every_partition_that_is_led(cluster: Cluster) -> None:
    cluster.open = {(COPY, 0): {7: 50, 8: 20}, (COPY, 1): {7: 3}, (OTHER, 0): {7: 1}}
    assert looked(cluster) == [(COPY, 0, 7, 50), (COPY, 0, 8, 20), (COPY, 1, 7, 3)]
    cluster.leaders[COPY, 1] = NO_LEADER
    assert looked(cluster) == [(COPY, 0, 7, 50), (COPY, 0, 8, 20)]


def test_what_a_coordinator_here_has_under_way_is_not_the_sources(cluster: Cluster) -> None:
    cluster.open[COPY, 0] = {7: 50, 8: 20}
    cluster.own = {2: [8]}
    assert looked(cluster, of_source=False) == [(COPY, 0, 7, 50)]
    assert looked(cluster, of_source=True) == [(COPY, 0, 7, 50), (COPY, 0, 8, 20)]


@pytest.mark.parametrize(("bytes_max", "count", "is_whole"), [(1 << 20, 3, True), (1, 1, False)])
def test_messages_of_the_open_transaction_alone_are_counted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, bytes_max: int, count: int, *, is_whole: bool
) -> None:
    monkeypatch.setattr(cut_transactions, "COUNTED_SIZE_MAX", bytes_max)
    whose = [(7, False), (7, False), (8, False), (7, False), (7, True), (7, False)]
    for offset, (producer, is_marker) in enumerate(whose):
        cluster.log += encode_batch(
            [Record(0, 0, b"\0\0\0\1", b"\0" * 6, [])],
            base_offset=offset,
            producer_id=producer,
            transactional=True,
            control=is_marker,
        )
    (found,) = asyncio.run(counted(cast("ClusterClient", cluster), [cut(7, 1)]))
    assert (found.messages, found.is_counted) == (count, is_whole)
    assert ("at least " in str(found)) is not is_whole
    assert f"{count} message{'s' if count > 1 else ''} from offset 1 on" in str(found)


def test_brokers_that_hear_late_of_the_promotion_are_asked_again(cluster: Cluster) -> None:
    cluster.open[COPY, 0], cluster.open[COPY, 1] = {7: 50}, {9: 2}
    cluster.refusals = [ErrorCode.POLICY_VIOLATION, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert ended(cluster, cut(7, 50), cut(9, 2, 1)) == 2
    assert sorted(cluster.aborted) == [(7, COPY, 0, 0), (9, COPY, 1, 0)]
    assert cluster.refreshed
    assert ended(cluster) == 0, "given again it changes nothing"


@pytest.mark.parametrize(("own", "count"), [([], 2), ([10], 1)])
def test_what_the_source_begins_meanwhile_is_ended_and_what_clients_begin_is_not(
    cluster: Cluster, own: list[int], count: int
) -> None:
    cluster.open[COPY, 0], cluster.later = {7: 50}, {10: 60}
    cluster.own = {1: [7, *own]}
    assert ended(cluster, cut(7, 50)) == count
    assert (10 in cluster.open[COPY, 0]) is bool(own)


def test_a_transaction_that_cannot_be_ended_is_told(cluster: Cluster) -> None:
    cluster.open[COPY, 0] = {7: 50}
    cluster.refusals = [ErrorCode.NOT_ENOUGH_REPLICAS] * 9
    with pytest.raises(click.ClickException, match=r"dc-east.t-0: NOT_ENOUGH_REPLICAS.*the same order again"):
        ended(cluster, cut(7, 50), timeout_seconds=0)


def test_a_partition_that_cannot_be_asked_is_told(cluster: Cluster) -> None:
    cluster.leaders[COPY, 1] = NO_LEADER
    with pytest.raises(click.ClickException, match=r"dc-east.t-1 has no leader"):
        ended(cluster, timeout_seconds=0)
    cluster.leaders[COPY, 1] = 2

    async def ask(*_: Any) -> Any:
        raise error_of(ErrorCode.BROKER_NOT_AVAILABLE, "broker 2 is not alive")

    cluster.ask = ask  # type: ignore[method-assign, assignment]
    with pytest.raises(click.ClickException, match="broker 2 is not alive"):
        ended(cluster, timeout_seconds=0)
