"""The cluster that sources are brought into as aggregate mode writes to it: as a client of each partition's leader.

Every method may raise FAILURES and KafkaErrors; the links are of no use then and are opened anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.errors import error_of
from headrace.broker.wire.api import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k22_init_producer_id,
    k61_describe_producers,
)
from headrace.broker.wire.batches import BatchHeader, iter_batches
from headrace.broker.wire.client.offsets import LIST_OFFSETS_VERSION, list_offsets, listed_offsets
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import CONSUMER_REPLICA_ID, NO_EPOCH
from headrace.mirror.aggregate.cluster import Cluster, Outcome
from headrace.mirror.aggregate.position import SEQUENCE_COUNT

PRODUCE_VERSION, FETCH_VERSION, INIT_VERSION, DESCRIBE_VERSION = 9, 11, 2, 0
SEARCHED_BYTES = 4 * 1024 * 1024


class Target:
    """Has a connection to each leader that it needed; one request at a time on each."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._links: dict[Address, AsyncLink] = {}

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def refresh_soon(self) -> None:
        """A leader refused, or there is none."""
        self._cluster.refresh_soon()

    def leaders(self, keys: Iterable[PartitionKey]) -> dict[Address, list[PartitionKey]]:
        """By the leader's address; without those that have none."""
        found: dict[Address, list[PartitionKey]] = {}
        for key in keys:
            address = self._cluster.leader_address(*key)
            if address is not None:
                found.setdefault(address, []).append(key)
        return found

    async def new_producer_id(self, address: Address) -> int:
        """An id that nobody else has."""
        message = {"transactional_id": None, "transaction_timeout_ms": self._timeout_ms}
        answer = await (await self._to(address)).ask(k22_init_producer_id.API, INIT_VERSION, message)
        if answer["error_code"]:
            raise error_of(answer["error_code"], "the target gives no producer id")
        found: int = answer["producer_id"]
        return found

    async def next_sequences(
        self, address: Address, producers: Mapping[PartitionKey, int]
    ) -> dict[PartitionKey, int | Outcome | None]:
        """What each producer's next sequence number is, None where the leader knows no such producer, or an error."""
        topics: dict[str, list[int]] = {}
        for topic, partition in producers:
            topics.setdefault(topic, []).append(partition)
        message = {
            "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
        }
        answer = await (await self._to(address)).ask(k61_describe_producers.API, DESCRIBE_VERSION, message)
        found: dict[PartitionKey, int | Outcome | None] = {}
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                key = topic["name"], partition["partition_index"]
                if partition["error_code"]:
                    found[key] = partition["error_code"], partition["error_message"] or ""
                    continue
                lasts = [
                    producer["last_sequence"]
                    for producer in partition["active_producers"]
                    if producer["producer_id"] == producers.get(key)
                ]
                found[key] = (lasts[0] + 1) % SEQUENCE_COUNT if lasts and lasts[0] >= 0 else None
        return found

    async def offsets(
        self,
        address: Address,
        keys: Iterable[PartitionKey],
        timestamp: int,
        replica_id: int = CONSUMER_REPLICA_ID,
    ) -> dict[PartitionKey, int]:
        """Of each log: where it begins, up to where it is committed, or for DEBUGGING_REPLICA_ID where it ends; without those
        of which the leader does not say.
        """
        request = list_offsets(dict.fromkeys(keys, NO_EPOCH), timestamp, replica_id=replica_id)
        answer = await (await self._to(address)).ask(k02_list_offsets.API, LIST_OFFSETS_VERSION, request)
        return {key: offset for key, (code, offset) in listed_offsets(answer).items() if code == 0}

    async def headers(self, address: Address, key: PartitionKey, offset: int) -> list[BatchHeader]:
        """Of some committed batches from there on."""
        wanted = {"partition": key[1], "fetch_offset": offset, "partition_max_bytes": SEARCHED_BYTES}
        message = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": SEARCHED_BYTES,
            "session_epoch": -1,
            "topics": [{"topic": key[0], "partitions": [wanted]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = await (await self._to(address)).ask(k01_fetch.API, FETCH_VERSION, message)
        found = answer["responses"][0]["partitions"][0]
        if found["error_code"]:
            raise error_of(
                found["error_code"], f"the target's {key[0]}-{key[1]} cannot be read at offset {offset}"
            )
        return [header for _, header in iter_batches(memoryview(found["records"] or b""))]

    async def produce(
        self, address: Address, batches: Mapping[PartitionKey, bytearray]
    ) -> dict[PartitionKey, tuple[Outcome, int]]:
        """What became of each, once all replicas in sync have it, and its first offset."""
        topics: dict[str, list[dict[str, object]]] = {}
        for (topic, partition), batch in batches.items():
            topics.setdefault(topic, []).append({"index": partition, "records": batch})
        message = {
            "acks": -1,
            "timeout_ms": self._timeout_ms // 2,
            "topic_data": [{"name": name, "partition_data": data} for name, data in topics.items()],
        }
        answer = await (await self._to(address)).ask(k00_produce.API, PRODUCE_VERSION, message)
        return {
            (topic["name"], partition["index"]): (
                (partition["error_code"], partition["error_message"] or ""),
                partition["base_offset"],
            )
            for topic in answer["responses"]
            for partition in topic["partition_responses"]
        }

    async def _to(self, address: Address) -> AsyncLink:
        if address not in self._links:
            client_id = f"headrace-aggregate-{self._cluster.member_id}"
            self._links[address] = await AsyncLink.open(
                address, client_id, self._timeout_ms, security=self._cluster.security
            )
        return self._links[address]
