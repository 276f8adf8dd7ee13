"""A small blocking Kafka client on `headrace.broker.wire`: whole batches in, committed group offsets out.

Owns sockets to brokers: metadata, list offsets, fetch, epoch ends, topics' settings, offset commit. Invariants: one
request in flight a connection; every read is bounded by the time-out and by `RESPONSE_SIZE_MAX`; a failed connection or a
moved leader is retried `ATTEMPTS_MAX` times with fresh metadata, then raised as `ConnectionFailedError`; a fetch names the
leader epoch that it believes in, so two answers with the same `Fetched.origin` are of one log that was not cut in between.
Must not know records, schemas or tables. Used by the loads and by the audit's counters. Not thread-safe; a process that
forks makes its own.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS
from headrace.broker.wire.fields import ZERO_UUID
from headrace.load.fences import NO_EPOCH, EpochEnd
from headrace.load.ranges import LogOffsets, TopicPartition

RESPONSE_SIZE_MAX: Final = 256 * 1024 * 1024
ATTEMPTS_MAX: Final = 6
RETRY_WAIT_SECONDS: Final = 0.2
READ_COMMITTED: Final = 1
EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, FIND_COORDINATOR, API_VERSIONS = 0, 1, 2, 3, 8, 10, 18
OFFSET_FOR_LEADER_EPOCH: Final = 23
DESCRIBE_CONFIGS: Final = 32
TOPIC_RESOURCE: Final = 2
PREFERRED_VERSIONS: Final = {
    FETCH: 13,
    LIST_OFFSETS: 5,
    METADATA: 12,
    OFFSET_COMMIT: 7,
    FIND_COORDINATOR: 2,
    OFFSET_FOR_LEADER_EPOCH: 3,
    DESCRIBE_CONFIGS: 1,
}
"""The highest version used of each API; a broker that has less gets its own highest."""
FETCH_BY_NAME: Final = 12
"""The last version of Fetch that names topics; later ones give their ids (KIP-516)."""

MOVED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Answers that fresh metadata and a moment's patience may cure."""

T = TypeVar("T")
Address = tuple[str, int]


class ConnectionFailedError(Exception):
    """No broker answered, or a partition had no leader, after all attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """One partition's answer: whole batches (the last one may be cut), as they lie in the log."""

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of aborted transactions in `records`."""
    origin: Origin | None = None
    """Who answered; None where that is not known."""


class Origin(NamedTuple):
    """One connection to a leader, by a number that no other has, and the leader epoch that the fetch named."""

    connection: int
    leader_epoch: int


_NUMBERS: Final = itertools.count()


class Connection:
    """One socket to one broker; `ask` sends a request and returns the decoded answer."""

    def __init__(self, address: Address, client_id: str, timeout_seconds: float) -> None:
        self.number = next(_NUMBERS)
        self._client_id = client_id
        self._correlation_ids = itertools.count()
        self._versions: dict[int, int] = {}
        self._socket = socket.create_connection(address, timeout=timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._versions = self._negotiate()
        except BaseException:
            self._socket.close()
            raise

    def ask(self, key: int, request: Mapping[str, Any], *, version_max: int | None = None) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            OSError: the connection failed, timed out or was closed; it must not be used again.
        """
        version = self._versions[key]
        return self._exchange(key, version if version_max is None else min(version, version_max), request)

    def close(self) -> None:
        self._socket.close()

    def _negotiate(self) -> dict[int, int]:
        answer = self._exchange(API_VERSIONS, 0, {})
        offered = {api["api_key"]: api["max_version"] for api in answer["api_keys"]}
        return {key: min(version, offered.get(key, version)) for key, version in PREFERRED_VERSIONS.items()}

    def _exchange(self, key: int, version: int, request: Mapping[str, Any]) -> dict[str, Any]:
        api = APIS[key]
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        header = frames.encode_request_header(key, version, correlation_id, self._client_id)
        self._socket.sendall(frames.frame(header, api.encode_request(version, dict(request))))
        answer = self._read_frame()
        answered_id, body = frames.read_response_header(key, version, answer)
        if answered_id != correlation_id:
            raise ConnectionError(f"the broker answered request {answered_id} instead of {correlation_id}")
        decoded: dict[str, Any] = api.decode_response(version, answer, body)
        return decoded

    def _read_frame(self) -> memoryview:
        (size,) = struct.unpack(">i", self._read_exactly(4))
        if not 0 <= size <= RESPONSE_SIZE_MAX:
            raise ConnectionError(
                f"the broker announced an answer of {size} bytes, the limit is {RESPONSE_SIZE_MAX}"
            )
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        position = 0
        while position < size:
            received = self._socket.recv_into(view[position:])
            if received == 0:
                raise ConnectionError("the broker closed the connection")
            position += received
        return view


class Client:
    """Asks the right broker, and asks again with fresh metadata when the leader has moved.

    Args:
        bootstrap: `host:port[,host:port]…`
        timeout_seconds: how long one request may take.

    Raises:
        ConnectionFailedError: from every method, when no attempt succeeded.
        KafkaError: from every method, when the broker refused (for instance `OffsetOutOfRangeError`).
    """

    def __init__(self, bootstrap: str, *, client_id: str = "headrace", timeout_seconds: float = 10.0) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self._timeout_seconds = timeout_seconds
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._cluster_id: str | None = None

    def partitions(self, wanted: Callable[[str], bool]) -> list[TopicPartition]:
        """Return all partitions of the topics whose name is wanted, in order; never creates a topic."""
        self._retried(lambda: self._refresh(None), None)
        return sorted(partition for partition in self._leaders if wanted(partition.topic))

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics as of the last look at the metadata; a topic made anew has another one.

        Brokers from before topic ids (KIP-516) give none.
        """
        return dict(self._topic_ids)

    def cluster_id(self) -> str | None:
        """Return the id of the cluster as of the last look at the metadata; None where the brokers gave none."""
        return self._cluster_id

    def topic_settings(self, topics: Collection[str], name: str) -> dict[str, str]:
        """Return a setting of each topic; topics of which the broker does not tell it are left out."""
        request = {
            "resources": [
                {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": [name]}
                for topic in topics
            ],
            "include_synonyms": False,
        }
        answer = self._retried(lambda: self._any().ask(DESCRIBE_CONFIGS, request), None)
        return {
            result["resource_name"]: setting["value"]
            for result in answer["results"]
            for setting in result["configs"]
            if result["error_code"] == ErrorCode.NONE and setting["name"] == name
        }

    def leader_host(self, partition: TopicPartition) -> str:
        """Return the host of a partition's leader as of the last look at the metadata; empty where there is none."""
        address = self._leader_address(partition)
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
        starts = self._list_offsets(partitions, EARLIEST_TIMESTAMP, attempts_max)
        ends = self._list_offsets(starts, LATEST_TIMESTAMP, attempts_max)
        return {partition: LogOffsets(starts[partition], ends[partition]) for partition in ends}

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        size_max: int = 8 * 1024 * 1024,
        wait_ms: int = 0,
        topic_id: str | None = None,
    ) -> Fetched:
        """Fetch whole batches from the one that holds `offset` on; waits up to `wait_ms` when there are none yet.

        A batch larger than `size_max` is returned whole, alone. `records` is empty at the end of the log. With
        `topic_id` it is a topic of this id that answers, or none, where the broker knows ids in fetches.
        """
        version_max = FETCH_BY_NAME if topic_id is None else None

        def attempt() -> Fetched:
            connection = self._leader(partition)
            epoch = self._leader_epochs.get(partition, NO_EPOCH)
            request = _fetch_request(partition, offset, size_max, wait_ms, epoch, topic_id)
            answer = connection.ask(FETCH, request, version_max=version_max)
            _check(answer.get("error_code", 0), "fetch")
            data = answer["responses"][0]["partitions"][0]
            _check(
                data["error_code"], f"fetch from {partition.topic}-{partition.partition} at offset {offset}"
            )
            return _fetched(data, Origin(connection.number, epoch))

        return self._retried(attempt, partition.topic)

    def epoch_end(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd:
        """Return where a leader epoch ends in the log of its leader (KIP-320)."""

        def attempt() -> EpochEnd:
            connection = self._leader(partition)
            wanted = {
                "partition": partition.partition,
                "current_leader_epoch": self._leader_epochs.get(partition, NO_EPOCH),
                "leader_epoch": leader_epoch,
            }
            request = {"replica_id": -1, "topics": [{"topic": partition.topic, "partitions": [wanted]}]}
            answer = connection.ask(OFFSET_FOR_LEADER_EPOCH, request)
            data = answer["topics"][0]["partitions"][0]
            _check(
                data["error_code"], f"end of epoch {leader_epoch} of {partition.topic}-{partition.partition}"
            )
            return EpochEnd(data.get("leader_epoch", NO_EPOCH), data["end_offset"])

        return self._retried(attempt, partition.topic)

    def commit_offsets(
        self, group: str, positions: Mapping[TopicPartition, int], *, attempts_max: int = ATTEMPTS_MAX
    ) -> None:
        """Commit positions of a group without members, as an assign-only consumer does (generation -1)."""
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition.partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                    for partition, offset in members
                ],
            }
            for topic, members in _by_topic(positions.items(), lambda item: item[0])
        ]
        request = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time_ms": -1,
            "topics": topics,
        }

        def attempt() -> None:
            answer = self._coordinator(group).ask(OFFSET_COMMIT, request)
            for topic in answer["topics"]:
                for partition in topic["partitions"]:
                    _check(partition["error_code"], f"offset commit of group {group}")

        self._retried(attempt, None, attempts_max)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _list_offsets(
        self, partitions: Collection[TopicPartition], timestamp: int, attempts_max: int
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for number in range(attempts_max):
            missing = [partition for partition in partitions if partition not in found]
            if not missing:
                break
            if number:
                time.sleep(RETRY_WAIT_SECONDS * number)
                self._refresh_if_possible({partition.topic for partition in missing})
            for address, members in _grouped(missing, self._leader_address):
                if address is not None:
                    found |= self._offsets_from(address, members, timestamp)
        return found

    def _offsets_from(
        self, address: Address, partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Ask one broker; what it cannot answer now is left out."""
        topics = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": item.partition, "current_leader_epoch": -1, "timestamp": timestamp}
                    for item in members
                ],
            }
            for topic, members in _by_topic(partitions, lambda partition: partition)
        ]
        request = {"replica_id": -1, "isolation_level": READ_COMMITTED, "topics": topics}
        try:
            answer = self._connection(address).ask(LIST_OFFSETS, request)
        except OSError:
            self.close()
            return {}
        found: dict[TopicPartition, int] = {}
        for topic in answer["topics"]:
            for data in topic["partitions"]:
                if data["error_code"] not in MOVED:
                    _check(data["error_code"], f"offsets of {topic['name']}-{data['partition_index']}")
                    found[TopicPartition(topic["name"], data["partition_index"])] = data["offset"]
        return found

    def _leader_address(self, partition: TopicPartition) -> Address | None:
        return self._brokers.get(self._leaders.get(partition, -1))

    def _coordinator(self, group: str) -> Connection:
        answer = self._any().ask(FIND_COORDINATOR, {"key": group, "key_type": 0})
        _check(answer["error_code"], f"the coordinator of group {group}")
        return self._connection((answer["host"], answer["port"]))

    def _leader(self, partition: TopicPartition) -> Connection:
        leader = self._leader_id(partition)
        return self._connection(self._brokers[leader])

    def _leader_id(self, partition: TopicPartition) -> int:
        leader = self._leaders.get(partition, -1)
        if leader not in self._brokers:
            self._refresh([partition.topic])
            leader = self._leaders.get(partition, -1)
        if leader not in self._brokers:
            raise error_of(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{partition.topic}-{partition.partition} has no leader"
            )
        return leader

    def _refresh_if_possible(self, topics: Iterable[str]) -> None:
        try:
            self._refresh(topics)
        except OSError:
            self.close()

    def _refresh(self, topics: Iterable[str] | None) -> None:
        names = None if topics is None else [{"name": topic} for topic in topics]
        answer = self._any().ask(METADATA, {"topics": names, "allow_auto_topic_creation": False})
        self._brokers = {broker["node_id"]: (broker["host"], broker["port"]) for broker in answer["brokers"]}
        self._cluster_id = answer.get("cluster_id")
        if topics is None:
            self._leaders.clear()
            self._leader_epochs.clear()
            self._topic_ids.clear()
        for topic in answer["topics"]:
            if topic.get("topic_id", ZERO_UUID) != ZERO_UUID:
                self._topic_ids[topic["name"]] = str(topic["topic_id"])
            for partition in topic["partitions"]:
                key = TopicPartition(topic["name"], partition["partition_index"])
                self._leaders[key] = partition["leader_id"]
                self._leader_epochs[key] = partition.get("leader_epoch", NO_EPOCH)

    def _any(self) -> Connection:
        """Return a connection to any broker that accepts one, those already open and the bootstrap ones first."""
        failure: OSError | None = None
        for address in dict.fromkeys([*self._connections, *self._bootstrap, *self._brokers.values()]):
            try:
                return self._connection(address)
            except OSError as error:
                failure = error
        raise ConnectionError(f"no broker of {self._bootstrap} accepts a connection: {failure}")

    def _connection(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = Connection(address, self._client_id, self._timeout_seconds)
            self._connections[address] = connection
        return connection

    def _retried(self, attempt: Callable[[], T], topic: str | None, attempts_max: int = ATTEMPTS_MAX) -> T:
        """Run an attempt until it succeeds; a failed connection drops all of them, a moved leader its metadata."""
        failure: Exception | None = None
        for number in range(attempts_max):
            if number:
                time.sleep(RETRY_WAIT_SECONDS * number)
            try:
                return attempt()
            except OSError as error:
                failure = error
                self.close()
            except KafkaError as error:
                if error.code not in MOVED:
                    raise
                failure = error
            self._leaders = {
                key: leader for key, leader in self._leaders.items() if topic not in (None, key.topic)
            }
        raise ConnectionFailedError(f"{failure} (after {attempts_max} attempts)") from failure


def parse_bootstrap(bootstrap: str) -> tuple[Address, ...]:
    """Parse `host:port[,host:port]…`; raises ValueError with a sentence."""
    addresses: list[Address] = []
    for part in bootstrap.split(","):
        host, separator, port = part.strip().rpartition(":")
        if not separator or not host or not port.isdigit():
            raise ValueError(f"{part.strip()!r} is no HOST:PORT; name brokers as HOST:PORT[,HOST:PORT]…")
        addresses.append((host.strip("[]"), int(port)))
    return tuple(addresses)


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
    )


def _grouped(items: Iterable[T], key: Callable[[T], Any]) -> list[tuple[Any, list[T]]]:
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())


def _by_topic(items: Iterable[T], partition_of: Callable[[T], TopicPartition]) -> list[tuple[str, list[T]]]:
    return _grouped(items, lambda item: partition_of(item).topic)
