"""What loads and counters ask of a cluster's logs: whole batches in, committed group offsets out.

Owns the questions, not the asking: metadata, list offsets, fetch, epoch ends, topics' settings, offset commit. Invariant: a
fetch names the leader epoch that it believes in, so two answers with the same `Fetched.origin` are of one log that was not
cut in between. Must not know records, schemas or tables. Used by the loads and by the audit's counters. Not thread-safe; a
process that forks makes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.blocking_cluster import (
    ATTEMPTS_MAX,
    BlockingCluster,
    ConnectionFailedError,
    attempts,
)
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.wire.api import (
    k01_fetch,
    k02_list_offsets,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k16_list_groups,
    k23_offset_for_leader_epoch,
    k32_describe_configs,
)
from headrace.broker.wire.client.offsets import (
    EPOCH_ENDS_VERSION,
    LIST_OFFSETS_VERSION,
    by_topic,
    epoch_ends,
    listed_by,
    listed_offsets,
    told_epoch_ends,
)
from headrace.broker.wire.client.view import MOVED, Address
from headrace.broker.wire.fields import ZERO_UUID, Message
from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.wire.special_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_EPOCH, READ_COMMITTED
from headrace.load.fences import EpochEnd
from headrace.load.ranges import LogOffsets

FETCH_BY_ID: Final = 13
FETCH_BY_NAME: Final = 12
"""The last version of Fetch that names topics; later ones give their ids (KIP-516)."""
OFFSET_COMMIT_VERSION: Final = 7
OFFSET_FETCH_VERSION: Final = 7
LIST_GROUPS_VERSION: Final = 3
FIND_COORDINATOR_VERSION: Final = 2
DESCRIBE_CONFIGS_VERSION: Final = 1
TOPIC_RESOURCE: Final = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One partition's answer: whole batches (the last one may be cut), as they lie in the log."""

    records: memoryview
    """Valid until the next request to the same broker."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of aborted transactions in `records`."""
    origin: Origin | None = None
    """Who answered; None where that is not known."""
    is_headers: bool = False
    """Whether `records` are the headers of whole batches and nothing else."""


class Origin(NamedTuple):
    """One connection to a leader, by a number that no other has, and the leader epoch that the fetch named."""

    connection: int
    leader_epoch: int


class LogClient:
    """Asks the right broker, and asks again with fresh metadata when the leader has moved.

    Args:
        timeout_seconds: how long one request may take.

    Raises:
        ConnectionFailedError: from every method, when no attempt succeeded.
        KafkaError: from every method, when the broker refused (for instance `OffsetOutOfRangeError`).
    """

    def __init__(
        self, bootstrap: Bootstrap, *, client_id: str = "headrace", timeout_seconds: float = 10.0
    ) -> None:
        self._cluster = BlockingCluster(bootstrap.addresses, client_id, timeout_seconds, bootstrap.security)

    def partitions(self, wanted: Callable[[str], bool]) -> list[TopicPartition]:
        """Return all partitions of the topics whose name is wanted, in order; never creates a topic."""
        cluster = self._cluster
        cluster.retried(lambda: cluster.refresh(None), None)
        return sorted(TopicPartition(*place) for place in cluster.view.leaders if wanted(place[0]))

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics as of the last look at the metadata; a topic made anew has another one.

        Brokers from before topic ids (KIP-516) give none.
        """
        return {topic: str(topic_id) for topic, topic_id in self._cluster.view.topic_ids.items()}

    def cluster_id(self) -> str | None:
        """Return the id of the cluster as of the last look at the metadata; None where the brokers gave none."""
        return self._cluster.view.cluster_id

    def topic_settings(self, topics: Collection[str], name: str) -> dict[str, str]:
        """Return a setting of each topic; topics of which the broker does not tell it are left out."""
        request = {
            "resources": [
                {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": [name]}
                for topic in topics
            ],
            "include_synonyms": False,
        }

        def attempt() -> Message:
            return self._cluster.any().ask(k32_describe_configs.API, DESCRIBE_CONFIGS_VERSION, request)

        answer = self._cluster.retried(attempt, None)
        return {
            result["resource_name"]: setting["value"]
            for result in answer["results"]
            for setting in result["configs"]
            if result["error_code"] == ErrorCode.NONE and setting["name"] == name
        }

    def leader_host(self, partition: TopicPartition) -> str:
        """Return the host of a partition's leader as of the last look at the metadata; empty where there is none."""
        address = self._cluster.view.leader_of(partition)
        return address[0] if address else ""

    def log_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        """Return each partition's log start offset and last stable offset."""
        found = self.reachable_log_offsets(partitions, attempts_max=ATTEMPTS_MAX)
        missing = [partition for partition in partitions if partition not in found]
        if missing:
            raise ConnectionFailedError(
                f"no leader answers for {named(missing)} (after {ATTEMPTS_MAX} attempts)"
            )
        return found

    def reachable_log_offsets(
        self, partitions: Collection[TopicPartition], *, attempts_max: int = 2
    ) -> dict[TopicPartition, LogOffsets]:
        """Like `log_offsets`, but partitions whose leader does not answer are left out, and cost the others little."""
        return self.reachable_ends_and_offsets((), partitions, attempts_max=attempts_max)[1]

    def reachable_ends_and_offsets(
        self,
        ended: Collection[TopicPartition],
        partitions: Collection[TopicPartition],
        *,
        attempts_max: int = 2,
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, LogOffsets]]:
        """Return the last stable offsets of some partitions, and of others like `reachable_log_offsets`.

        The ends of the first are told by all brokers before those of the others are asked for, in two questions a broker.
        """
        asked = {**dict.fromkeys(partitions, EARLIEST_TIMESTAMP), **dict.fromkeys(ended, LATEST_TIMESTAMP)}
        told = self._list_offsets(asked, attempts_max)
        starts = {partition: told[partition] for partition in partitions if partition in told}
        starts |= self._list_offsets(
            dict.fromkeys({*partitions} & {*ended}, EARLIEST_TIMESTAMP), attempts_max
        )
        ends = self._list_offsets(dict.fromkeys(starts, LATEST_TIMESTAMP), attempts_max)
        offsets = {partition: LogOffsets(starts[partition], ends[partition]) for partition in ends}
        return {partition: told[partition] for partition in ended if partition in told}, offsets

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        size_max: int = 8 * 1024 * 1024,
        wait_ms: int = 0,
        topic_id: str | None = None,
        wants_headers: bool = False,
    ) -> Fetched:
        """Fetch whole batches from the one that holds `offset` on; waits up to `wait_ms` when there are none yet.

        A batch larger than `size_max` is returned whole, alone. `records` is empty at the end of the log. With
        `topic_id` it is a topic of this id that answers, or none, where the broker knows ids in fetches. With
        `wants_headers` headers alone come from brokers that can part them from their records, and whole batches from others.
        """
        version_max = FETCH_BY_NAME if topic_id is None else FETCH_BY_ID

        def attempt() -> Fetched:
            link = self._cluster.to_leader(partition)
            epoch = self._cluster.view.leader_epoch_of(partition)
            request = _fetch_request(partition, offset, size_max, wait_ms, epoch, topic_id)
            request["wants_batch_headers"] = wants_headers
            answer = link.ask(k01_fetch.API, version_max, request)
            _check(answer.get("error_code", 0), "fetch")
            data = answer["responses"][0]["partitions"][0]
            _check(
                data["error_code"], f"fetch from {partition.topic}-{partition.partition} at offset {offset}"
            )
            return _fetched(data, Origin(link.number, epoch))

        return self._cluster.retried(attempt, partition.topic)

    def offsets_since(
        self, partitions: Collection[TopicPartition], since_ms: int
    ) -> dict[TopicPartition, int]:
        """Return each partition's first offset of that time or later; -1 where there is none."""
        return self._list_offsets(dict.fromkeys(partitions, since_ms), ATTEMPTS_MAX)

    def groups(self) -> list[str]:
        """Return the names of all consumer groups, as every broker tells of those that it coordinates."""

        def attempt() -> list[str]:
            self._cluster.refresh(None)
            found: set[str] = set()
            for address in self._cluster.view.addresses.values():
                answer = self._cluster.to(address).ask(k16_list_groups.API, LIST_GROUPS_VERSION, {})
                _check(answer["error_code"], "the groups of a broker")
                found |= {group["group_id"] for group in answer["groups"]}
            return sorted(found)

        return self._cluster.retried(attempt, None)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return what a group has committed, by partition."""
        request = {"group_id": group, "topics": None, "require_stable": False}

        def attempt() -> dict[TopicPartition, int]:
            answer = self._coordinator(group).ask(k09_offset_fetch.API, OFFSET_FETCH_VERSION, request)
            _check(answer["error_code"], f"the offsets of group {group}")
            return {
                TopicPartition(topic["name"], found["partition_index"]): found["committed_offset"]
                for topic in answer["topics"]
                for found in topic["partitions"]
                if not found["error_code"] and found["committed_offset"] >= 0
            }

        return self._cluster.retried(attempt, None)

    def epoch_end(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd:
        """Return where a leader epoch ends in the log of its leader (KIP-320)."""

        def attempt() -> EpochEnd:
            link = self._cluster.to_leader(partition)
            current = self._cluster.view.leader_epoch_of(partition)
            request = epoch_ends({partition: (current, leader_epoch)})
            answer = link.ask(k23_offset_for_leader_epoch.API, EPOCH_ENDS_VERSION, request)
            ((code, epoch, end_offset),) = told_epoch_ends(answer).values()
            _check(code, f"end of epoch {leader_epoch} of {partition.topic}-{partition.partition}")
            return EpochEnd(epoch, end_offset)

        return self._cluster.retried(attempt, partition.topic)

    def commit_offsets(
        self, group: str, positions: Mapping[TopicPartition, int], *, attempts_max: int = ATTEMPTS_MAX
    ) -> None:
        """Commit positions of a group without members, as an assign-only consumer does (generation -1)."""
        wanted = (
            (
                partition,
                {
                    "partition_index": partition.partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                },
            )
            for partition, offset in positions.items()
        )
        request = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time_ms": -1,
            "topics": [{"name": topic, "partitions": parts} for topic, parts in by_topic(wanted).items()],
        }

        def attempt() -> None:
            answer = self._coordinator(group).ask(k08_offset_commit.API, OFFSET_COMMIT_VERSION, request)
            for topic in answer["topics"]:
                for partition in topic["partitions"]:
                    _check(partition["error_code"], f"offset commit of group {group}")

        self._cluster.retried(attempt, None, attempts_max)

    def close(self) -> None:
        """Close all connections; the next request opens those that it needs."""
        self._cluster.close()

    def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], attempts_max: int
    ) -> dict[TopicPartition, int]:
        """Ask for one offset of each partition, by a timestamp or what stands for one."""
        found: dict[TopicPartition, int] = {}
        missing = list(timestamps)
        for number in attempts(attempts_max):
            if number:
                self._cluster.refresh_if_possible({partition.topic for partition in missing})
            for address, members in _grouped(missing, self._cluster.view.leader_of):
                if address is not None:
                    found |= self._offsets_from(
                        address, {partition: timestamps[partition] for partition in members}
                    )
            missing = [partition for partition in timestamps if partition not in found]
            if not missing:
                break
        return found

    def _offsets_from(
        self, address: Address, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Ask one broker; what it cannot answer now is left out."""
        request = listed_by(
            {partition: (NO_EPOCH, timestamp) for partition, timestamp in timestamps.items()},
            isolation_level=READ_COMMITTED,
        )
        try:
            answer = self._cluster.to(address).ask(k02_list_offsets.API, LIST_OFFSETS_VERSION, request)
        except OSError:
            self._cluster.close()
            return {}
        found: dict[TopicPartition, int] = {}
        for (topic, number), (code, offset) in listed_offsets(answer).items():
            if code not in MOVED:
                _check(code, f"offsets of {topic}-{number}")
                found[TopicPartition(topic, number)] = offset
        return found

    def _coordinator(self, group: str) -> BlockingLink:
        request = {"key": group, "key_type": 0}
        answer = self._cluster.any().ask(k10_find_coordinator.API, FIND_COORDINATOR_VERSION, request)
        _check(answer["error_code"], f"the coordinator of group {group}")
        return self._cluster.to((answer["host"], answer["port"]))


def named(partitions: Iterable[TopicPartition]) -> str:
    """List partitions for a message, as `topic-number`, at most ten."""
    names = [f"{partition.topic}-{partition.partition}" for partition in partitions]
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _check(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        raise error_of(code, f"{what}: {_name(code)}")


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _fetch_request(
    partition: TopicPartition,
    offset: int,
    size_max: int,
    wait_ms: int,
    leader_epoch: int,
    topic_id: str | None,
) -> dict[str, Any]:
    wanted = {
        "partition": partition.partition,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": size_max,
    }
    topic = {
        "topic": partition.topic,
        "topic_id": UUID(topic_id) if topic_id else ZERO_UUID,
        "partitions": [wanted],
    }
    return {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": size_max,
        "isolation_level": READ_COMMITTED,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [topic],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def _fetched(data: Mapping[str, Any], origin: Origin) -> Fetched:
    aborted = data.get("aborted_transactions") or ()
    records = data.get("records")
    return Fetched(
        records=memoryview(records if records is not None else b""),
        high_watermark=data["high_watermark"],
        last_stable_offset=data["last_stable_offset"],
        log_start_offset=data["log_start_offset"],
        aborted=tuple((entry["producer_id"], entry["first_offset"]) for entry in aborted),
        origin=origin,
        is_headers=data["is_batch_headers"],
    )


def _grouped(items: Iterable[T], key: Callable[[T], Any]) -> list[tuple[Any, list[T]]]:
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())
