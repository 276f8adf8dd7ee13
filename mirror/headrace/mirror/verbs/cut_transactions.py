"""Transactions that a copy has only the beginning of: who began them, where, with how many messages, and ending them.

The source's coordinator never ends them here, and readers of committed messages wait where the first of them begins. Each is
ended by an abort marker (WriteTxnMarkers), as Apache Kafka's own tool ends a hanging one; it can be done again and again. A
copy takes no marker: it has to be promoted first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import click

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import ErrorCode, KafkaError, error_of, reason_of
from headrace.broker.wire.api import k27_write_txn_markers, k61_describe_producers, k66_list_transactions
from headrace.broker.wire.batches import iter_batches
from headrace.broker.wire.client.view import NO_LEADER, by_leader
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.cluster_client import ClusterClient

MARKERS_VERSION, PRODUCERS_VERSION, TRANSACTIONS_VERSION = 1, 0, 0
COUNTED_SIZE_MAX = 64 * 1024 * 1024
"""Behind so many bytes of a partition no more messages are counted."""
QUIET_LOOKS, LOOK_SECONDS = 2, 1.0
CutPlace = tuple[str, int, int, int]
UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A transaction that is open in a partition; `messages` of it were counted, and there may be more unless `is_counted`."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    first_offset: int
    messages: int = 0
    is_counted: bool = False

    @property
    def place(self) -> CutPlace:
        """What is the same however often it is looked at."""
        return self.topic, self.partition, self.producer_id, self.first_offset

    def __str__(self) -> str:
        count = f"{self.messages:,} message{'' if self.messages == 1 else 's'}"
        return (
            f"{self.topic}-{self.partition}: a transaction of producer {self.producer_id} (epoch {self.epoch}) is cut in the "
            f"middle: {'' if self.is_counted else 'at least '}{count} from offset {self.first_offset} on"
        )


# -- listing


async def listed(
    client: ClusterClient, topics: Collection[str], is_of_source: Callable[[Cut], bool]
) -> list[Cut]:
    """The transactions that are open in these topics' partitions, as far as they have leaders.

    Where `is_of_source` does not say so, only those that no coordinator of this cluster has under way. Raises FAILURES and
    KafkaErrors.
    """
    wanted = sorted(place for place in client.leaders if place[0] in topics)
    found: list[Cut] = []
    for broker, places in by_leader(client.leaders, wanted).items():
        asked = [{"name": topic, "partition_indexes": [partition]} for topic, partition in places]
        answer = await client.ask(broker, k61_describe_producers.API, PRODUCERS_VERSION, {"topics": asked})
        for told in answer["topics"]:
            for partition in told["partitions"]:
                found += _open(told["name"], partition)
    if not all(map(is_of_source, found)):
        own = await _own_producers(client)
        found = [cut for cut in found if is_of_source(cut) or cut.producer_id not in own]
    return sorted(found, key=lambda cut: cut.place)


def _open(topic: str, told: Message) -> list[Cut]:
    if told["error_code"]:
        raise error_of(told["error_code"], f"{topic}-{told['partition_index']} does not tell its producers")
    return [
        Cut(
            topic=topic,
            partition=told["partition_index"],
            producer_id=producer["producer_id"],
            epoch=producer["producer_epoch"],
            coordinator_epoch=max(0, producer["coordinator_epoch"]),
            first_offset=producer["current_txn_start_offset"],
        )
        for producer in told["active_producers"]
        if producer["current_txn_start_offset"] >= 0
    ]


async def counted(client: ClusterClient, cuts: Iterable[Cut]) -> list[Cut]:
    """The same with their messages; raises FAILURES and KafkaErrors."""
    by_place: dict[PartitionKey, list[Cut]] = {}
    for cut in cuts:
        by_place.setdefault((cut.topic, cut.partition), []).append(cut)
    found: list[Cut] = []
    for place, of_place in by_place.items():
        messages, is_whole = await _messages(client, place, {cut.producer_id: cut for cut in of_place})
        found += [replace(cut, messages=messages[cut.producer_id], is_counted=is_whole) for cut in of_place]
    return found


async def _messages(
    client: ClusterClient, place: PartitionKey, cuts: Mapping[int, Cut]
) -> tuple[dict[int, int], bool]:
    """Producer → the messages of its open transaction, and whether all were looked at."""
    found = dict.fromkeys(cuts, 0)
    start = (await client.log_starts([place])).get(f"{place[0]}-{place[1]}", 0)
    offset, size = max(start, min(cut.first_offset for cut in cuts.values())), 0
    while size < COUNTED_SIZE_MAX:
        records = await client.fetch(*place, offset)
        if not records:
            return found, True
        size += len(records)
        for _, header in iter_batches(records):
            cut = cuts.get(header.producer_id)
            if cut is not None and header.is_transactional and header.base_offset >= cut.first_offset:
                found[header.producer_id] += 0 if header.is_control else header.record_count
            offset = header.next_offset
    return found, False


async def _own_producers(client: ClusterClient) -> set[int]:
    """Producers with transactions under way of which this cluster's coordinators know; a headrace broker coordinates none."""
    found: set[int] = set()
    for broker in client.brokers:
        if not await client.serves(broker, k66_list_transactions.API):
            continue
        asked = {"state_filters": list(UNDER_WAY), "producer_id_filters": []}
        answer = await client.ask(broker, k66_list_transactions.API, TRANSACTIONS_VERSION, asked)
        if answer["error_code"]:
            raise error_of(answer["error_code"], f"broker {broker} does not tell its transactions")
        found |= {told["producer_id"] for told in answer["transaction_states"]}
    return found


# -- ending


async def end_all(
    client: ClusterClient, topics: Collection[str], known: Collection[Cut], timeout_seconds: float = 60
) -> int:
    """Abort what is open in these promoted topics, until two looks find nothing more: a broker may be late to hear of the
    promotion. `known` are of the source, and so is what no coordinator of this cluster has under way.

    Answers how many there were; raises ClickException when the time is over.
    """
    deadline = time.monotonic() + timeout_seconds
    of_source = {cut.place for cut in known}
    ended: set[CutPlace] = set()
    quiet_looks = 0
    while True:
        try:
            found = await listed(client, topics, lambda cut: cut.place in of_source)
            problem = await _abort(client, found) or _without_leader(client, topics)
        except (*FAILURES, KafkaError) as error:
            found, problem = [], reason_of(error)
        ended |= {cut.place for cut in found}
        quiet_looks = 0 if found or problem else quiet_looks + 1
        if quiet_looks == QUIET_LOOKS:
            return len(ended)
        if time.monotonic() >= deadline:
            raise click.ClickException(
                f"promoted, but transactions may be open yet ({problem or 'there come more and more'}), and readers of "
                "committed messages wait behind them: give the same order again"
            )
        await asyncio.sleep(LOOK_SECONDS)
        if problem:
            with contextlib.suppress(*FAILURES, KafkaError):
                await client.refresh()


def _without_leader(client: ClusterClient, topics: Collection[str]) -> str:
    """Which partition cannot be asked, or nothing."""
    places = [place for place, leader in client.leaders.items() if place[0] in topics and leader == NO_LEADER]
    return f"{places[0][0]}-{places[0][1]} has no leader" if places else ""


async def _abort(client: ClusterClient, cuts: Collection[Cut]) -> str:
    """Have the leaders write abort markers; why one was not written, or nothing."""
    problem = ""
    led: dict[int, list[Cut]] = {}
    for cut in cuts:
        led.setdefault(await client.leader_of(cut.topic, cut.partition), []).append(cut)
    for broker, those in led.items():
        markers = [
            {
                "producer_id": cut.producer_id,
                "producer_epoch": cut.epoch,
                "transaction_result": False,
                "topics": [{"name": cut.topic, "partition_indexes": [cut.partition]}],
                "coordinator_epoch": cut.coordinator_epoch,
            }
            for cut in those
        ]
        answer = await client.ask(broker, k27_write_txn_markers.API, MARKERS_VERSION, {"markers": markers})
        for told in answer["markers"]:
            for topic in told["topics"]:
                for partition in topic["partitions"]:
                    if partition["error_code"]:
                        code = ErrorCode(partition["error_code"]).name
                        problem = f"{topic['name']}-{partition['partition_index']}: {code}"
    return problem
