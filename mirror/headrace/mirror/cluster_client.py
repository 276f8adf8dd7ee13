"""What is asked of a whole cluster, by commands and by what brokers bring again and again: leaders, log ends, configurations,
batches, a small topic's records, one record published.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from headrace.broker.client.asynchronous import FAILURES, AsyncLink
from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.moment import now_ms
from headrace.broker.wire.api import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k19_create_topics,
    k32_describe_configs,
    k44_incremental_alter_configs,
)
from headrace.broker.wire.batches import Record, decode_records, encode_batch, iter_batches
from headrace.broker.wire.client.offsets import LIST_OFFSETS_VERSION, list_offsets, listed_offsets
from headrace.broker.wire.client.view import NO_LEADER, Address, ClusterView, by_leader
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.schema import Api
from headrace.broker.wire.special_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_EPOCH

CLIENT_ID = "headrace-mirror-command"
TIMEOUT_MS = 10_000
METADATA_VERSION, FETCH_VERSION, CREATE_VERSION = 12, 11, 5
BY_DEFAULT = -1
FETCH_BYTES = 4 * 1024 * 1024
TOPIC_RESOURCE, BROKER_RESOURCE, SET = 2, 4, 0
TOPICS_PER_REQUEST_MAX = 500


class ClusterClient:
    """An asynchronous context manager; metadata is read when it is entered, and at each `refresh`."""

    def __init__(
        self, bootstrap: Sequence[Address], client_id: str = CLIENT_ID, security: ClientSecurity = PLAINTEXT
    ) -> None:
        self.bootstrap = bootstrap
        self.security = security
        self._client_id = client_id
        self._view = ClusterView()
        self._links: dict[int, AsyncLink] = {}

    async def __aenter__(self) -> ClusterClient:
        await self.refresh()
        return self

    async def refresh(self) -> None:
        """Drop all connections and read the metadata anew; raises FAILURES and KafkaErrors."""
        self.close()
        failure: Exception = error_of(ErrorCode.BROKER_NOT_AVAILABLE)
        for address in dict.fromkeys((*self.bootstrap, *self._view.addresses.values())):
            try:
                async with await self._opened(address) as link:
                    answer = await link.ask(k03_metadata.API, METADATA_VERSION, {"topics": None})
            except FAILURES as error:
                failure = error
                continue
            self._view.take(answer, is_whole=True)
            return
        raise failure

    async def _opened(self, address: Address) -> AsyncLink:
        return await AsyncLink.open(address, self._client_id, TIMEOUT_MS, security=self.security)

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    @property
    def leaders(self) -> Mapping[PartitionKey, int]:
        """(topic, partition) → the leader's id, -1 without one."""
        return self._view.leaders

    async def leader_of(self, topic: str, partition: int) -> int:
        """The leader's id; raises KafkaError when there is none."""
        leader = self.leaders.get((topic, partition), NO_LEADER)
        if leader == NO_LEADER:
            raise error_of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return leader

    def leader_address(self, topic: str, partition: int) -> Address | None:
        """Where the leader of a partition is reached; None without one that is alive."""
        return self._view.leader_of((topic, partition))

    @property
    def controller(self) -> int:
        """The controller's id, -1 where nobody knows."""
        return self._view.controller_id

    @property
    def topic_ids(self) -> Mapping[str, UUID]:
        """Topic → its id; none of a cluster that is older than topic ids."""
        return self._view.topic_ids

    @property
    def cluster_id(self) -> str:
        """The cluster's id; nothing of one that does not tell it."""
        return self._view.cluster_id or ""

    @property
    def brokers(self) -> list[int]:
        """The ids of those that are alive."""
        return sorted(self._view.addresses)

    async def ask(self, broker: int, api: Api, highest: int, message: Message) -> Message:
        """What that broker answers; raises FAILURES and KafkaErrors."""
        answer: Message = await (await self._to(broker)).ask(api, highest, message)
        return answer

    async def serves(self, broker: int, api: Api) -> bool:
        """Whether that broker serves this key at all; raises FAILURES and KafkaErrors."""
        return (await self._to(broker)).version(api, api.versions[1]) >= 0

    async def log_starts(self, places: Collection[PartitionKey] | None = None) -> dict[str, int]:
        """`<topic>-<partition>` → log start offset, for each of these, or every, partition that has a leader."""
        return await self._offsets(EARLIEST_TIMESTAMP, places)

    async def log_ends(self, places: Collection[PartitionKey] | None = None) -> dict[str, int]:
        """`<topic>-<partition>` → high watermark, for each of these, or every, partition that has a leader."""
        return await self._offsets(LATEST_TIMESTAMP, places)

    async def offsets_since(self, since_ms: int, places: Collection[PartitionKey]) -> dict[str, int]:
        """`<topic>-<partition>` → its first message of that time or later; -1 where there is none."""
        return await self._offsets(since_ms, places)

    async def _offsets(
        self, timestamp: int, places: Collection[PartitionKey] | None = None
    ) -> dict[str, int]:
        found = {}
        for broker, asked in by_leader(self.leaders, self.leaders if places is None else places).items():
            link = await self._to(broker)
            request = list_offsets(dict.fromkeys(asked, NO_EPOCH), timestamp)
            answer = await link.ask(k02_list_offsets.API, LIST_OFFSETS_VERSION, request)
            for (topic, partition), (code, offset) in listed_offsets(answer).items():
                if code == 0:
                    found[f"{topic}-{partition}"] = offset
        return found

    async def read(self, topic: str) -> dict[int, list[Record]]:
        """All records of a small topic by partition, in offset order; of those that have a leader."""
        starts, ends = await self.log_starts(), await self.log_ends()
        found: dict[int, list[Record]] = {}
        for name, partition in sorted(self.leaders):
            if name == topic and self.leaders[name, partition] != NO_LEADER:
                key = f"{name}-{partition}"
                found[partition] = await self._read_partition(
                    name, partition, starts.get(key, 0), ends.get(key, 0)
                )
        return found

    async def _read_partition(self, topic: str, partition: int, offset: int, end: int) -> list[Record]:
        found: list[Record] = []
        while offset < end:
            records = await self.fetch(topic, partition, offset)
            before = offset
            for position, header in iter_batches(records):
                found += [r for r in decode_records(records, position, header) if r.offset >= offset]
                offset = header.next_offset
            if offset == before:
                break
        return found

    async def fetch(self, topic: str, partition: int, offset: int, size_max: int = FETCH_BYTES) -> memoryview:
        """Batches from an offset on, up to the high watermark: the first whole, however large, others up to so many bytes.

        Valid until this broker is asked again. Raises KafkaErrors.
        """
        link = await self._to(await self.leader_of(topic, partition))
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": size_max}
        answer = await link.ask(
            k01_fetch.API,
            FETCH_VERSION,
            {
                "max_wait_ms": 0,
                "min_bytes": 0,
                "max_bytes": size_max,
                "session_epoch": -1,
                "topics": [{"topic": topic, "partitions": [wanted]}],
                "forgotten_topics_data": [],
                "rack_id": "",
            },
        )
        data = answer["responses"][0]["partitions"][0]
        if data["error_code"]:
            raise error_of(data["error_code"], f"{topic}-{partition} cannot be read at offset {offset}")
        return memoryview(data["records"] or b"")

    async def publish(self, topic: str, partition: int, key: bytes, value: bytes) -> int:
        """Publish one record and wait until it is committed; answers the error code."""
        link = await self._to(await self.leader_of(topic, partition))
        batch = encode_batch([Record(0, now_ms(), key, value, [])])
        answer = await link.ask(
            k00_produce.API,
            8,
            {
                "acks": -1,
                "timeout_ms": TIMEOUT_MS,
                "topic_data": [
                    {"name": topic, "partition_data": [{"index": partition, "records": bytes(batch)}]}
                ],
            },
        )
        code: int = answer["responses"][0]["partition_responses"][0]["error_code"]
        return code

    async def topic_configs(self, topic: str) -> dict[str, str]:
        """The configuration of a topic, defaults included; raises KafkaErrors."""
        (found,) = await self._described((topic,), None)
        if found["error_code"]:
            raise error_of(found["error_code"], found["error_message"] or topic)
        return _values(found)

    async def configs_of(self, topics: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
        """Topic → these configurations, defaults included; without those that cannot be described, such as one that is gone."""
        found: dict[str, dict[str, str]] = {}
        for begin in range(0, len(topics), TOPICS_PER_REQUEST_MAX):
            results = await self._described(topics[begin : begin + TOPICS_PER_REQUEST_MAX], keys)
            found |= {one["resource_name"]: _values(one) for one in results if not one["error_code"]}
        return found

    async def _described(self, topics: Sequence[str], keys: Sequence[str] | None) -> list[Message]:
        wanted = [
            {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": keys}
            for topic in topics
        ]
        link = await self._to(min(self._view.addresses))
        answer = await link.ask(k32_describe_configs.API, 1, {"resources": wanted})
        results: list[Message] = answer["results"]
        return results

    async def set_topic_configs(self, topic: str, values: Mapping[str, str]) -> None:
        """Set these configurations of a topic, all or none; raises KafkaErrors."""
        resource = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": topic,
            "configs": [
                {"name": name, "config_operation": SET, "value": value} for name, value in values.items()
            ],
        }
        link = await self._to(min(self._view.addresses))
        answer = await link.ask(
            k44_incremental_alter_configs.API, 1, {"resources": [resource], "validate_only": False}
        )
        (changed,) = answer["responses"]
        if changed["error_code"]:
            raise error_of(changed["error_code"], changed["error_message"] or topic)

    async def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None:
        """Create a topic with as many replicas as the cluster gives by itself; raises KafkaErrors, not of one that is there."""
        wanted = {
            "name": topic,
            "num_partitions": partition_count,
            "replication_factor": BY_DEFAULT,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }
        message = {"topics": [wanted], "timeout_ms": TIMEOUT_MS, "validate_only": False}
        answer = await self.ask(self.controller, k19_create_topics.API, CREATE_VERSION, message)
        (created,) = answer["topics"]
        if created["error_code"] not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise error_of(created["error_code"], created["error_message"] or topic)

    async def broker_configs(self, broker: int, keys: Sequence[str]) -> dict[str, str]:
        """These configurations of a broker, as far as it knows them; raises KafkaErrors."""
        resource = {
            "resource_type": BROKER_RESOURCE,
            "resource_name": str(broker),
            "configuration_keys": keys,
        }
        answer = await self.ask(broker, k32_describe_configs.API, 1, {"resources": [resource]})
        (found,) = answer["results"]
        if found["error_code"]:
            raise error_of(found["error_code"], found["error_message"] or f"broker {broker}")
        return _values(found)

    async def _to(self, broker: int) -> AsyncLink:
        if broker not in self._links:
            address = self._view.addresses.get(broker)
            if address is None:
                raise error_of(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not alive")
            self._links[broker] = await self._opened(address)
        return self._links[broker]


def _values(described: Message) -> dict[str, str]:
    return {config["name"]: config["value"] for config in described["configs"] if config["value"] is not None}
