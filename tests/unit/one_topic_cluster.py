"""A cluster with one topic in memory, as `ClusterClient` shows it: for what is promoted, restored and reversed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from headrace.broker.errors import OffsetOutOfRangeError
from headrace.broker.wire.api import k03_metadata, k15_describe_groups, k16_list_groups
from headrace.broker.wire.batches import Record
from headrace.mirror.equality.difference import Batch


class Cluster:
    """A cluster as its client sees it: `logs` of one topic, by partition."""

    def __init__(self, cluster_id: str, topic: str, topic_id: UUID, *logs: Sequence[Batch]) -> None:
        self.cluster_id = cluster_id
        self.topic = topic
        self.logs = {(topic, number): list(found) for number, found in enumerate(logs)}
        self.leaders = dict.fromkeys(self.logs, 1)
        self.topic_ids = {topic: topic_id}
        self.configs: dict[str, str] = {}
        self.records: dict[bytes, bytes] = {}
        self.committed: dict[str, int] = {}
        self.group_state = "Empty"
        self.brokers = [1]
        self.unknown = False
        self.assigned: list[Any] = []
        self.moving: list[Any] = []

    async def refresh(self) -> None: ...

    async def topic_configs(self, topic: str) -> dict[str, str]:
        return self.configs

    async def configs_of(self, topics: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
        found = {key: value for key, value in self.configs.items() if key in keys}
        return {topic: found if topic in self.topic_ids else {} for topic in topics}

    async def set_topic_configs(self, topic: str, values: dict[str, str]) -> None:
        self.configs |= values

    async def read(self, topic: str) -> dict[int, list[Record]]:
        return {0: [Record(n, n, key, value, []) for n, (key, value) in enumerate(self.records.items())]}

    async def publish(self, topic: str, partition: int, key: bytes, value: bytes) -> int:
        self.records[key] = value
        return 0

    async def log_starts(self, places: Sequence[tuple[str, int]]) -> dict[str, int]:
        return {
            f"{t}-{p}": self.logs[t, p][0].header.base_offset if self.logs[t, p] else 0 for t, p in places
        }

    async def log_ends(self, places: Sequence[tuple[str, int]]) -> dict[str, int]:
        found = {
            f"{t}-{p}": self.logs[t, p][-1].header.next_offset if self.logs[t, p] else 0 for t, p in places
        }
        return {} if self.unknown else found

    async def fetch(self, topic: str, partition: int, offset: int, size_max: int) -> memoryview:
        assert size_max == 1
        for batch in self.logs[topic, partition]:
            if batch.header.next_offset > offset:
                return batch.data
        raise OffsetOutOfRangeError("behind the end")

    async def ask(self, broker: int, api: Any, version: int, message: Any) -> Any:
        name = api.name
        if api is k16_list_groups.API:
            return {"error_code": 0, "groups": [{"group_id": group} for group in self.committed]}
        if api is k15_describe_groups.API:
            return {"groups": [{"error_code": 0, "group_state": self.group_state}]}
        if api is k03_metadata.API:
            partitions = [
                {"partition_index": number, "replica_nodes": [1, 2, 3][: 3 - number]}
                for _, number in self.logs
            ]
            return {"controller_id": 1, "topics": [{"name": self.topic, "partitions": partitions}]}
        if name == "OffsetFetch":
            found = [
                {"partition_index": 0, "committed_offset": offset, "metadata": "", "error_code": 0}
                for offset in (self.committed[message["group_id"]],)
            ]
            return {"error_code": 0, "topics": [{"name": self.topic, "partitions": found}]}
        if name == "ListPartitionReassignments":
            return {"topics": self.moving}
        assert name == "AlterPartitionReassignments", name
        self.assigned.append(
            [(p["partition_index"], p["replicas"]) for p in message["topics"][0]["partitions"]]
        )
        return {"error_code": 0, "responses": []}
