"""Creating and deleting topics: checks, the znodes that state the wish, and the wait until it came true.

Invariants: nothing is written for a topic that fails a check; the configuration is written before the
topic, so that no broker opens its log without it; an answer without error means that this broker's
metadata cache shows it. A deletion is answered when the name is free again, unless a broker that is away
holds it up, and a new topic waits for its namesake's deletion under the same terms.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any
from uuid import uuid4

from headrace.broker.config import BrokerConfig, LogConfig
from headrace.broker.coordinators.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.broker.errors import (
    ErrorCode,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    ReassignmentInProgressError,
    RequestTimedOutError,
    TopicDeletionDisabledError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from headrace.broker.replication.assignment import assign_replicas
from headrace.broker.replication.model import (
    NO_LEADER,
    ReplicaAssignment,
    TopicAssignment,
)
from headrace.broker.replication.topic_requests import NewTopic, TopicResult, check_name
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.zk import paths
from headrace.broker.zk.client import (
    NoZnodeError,
    ZnodeExistsError,
    ZnodeVersionError,
    ZooKeeperClient,
    ZooKeeperClosedError,
)
from headrace.broker.zk.reads import read_topics

log = get_logger(__name__)
PARTITION_COUNT_MAX = 10_000
ZOOKEEPER_MS_MAX = 30_000
"""What ZooKeeper is given beyond the time that a request grants."""


class _Deadline:
    """The end of the time that a request grants."""

    def __init__(self, timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + timeout_ms / 1000

    @property
    def left_seconds(self) -> float:
        """What is left; 0 or less when it is over."""
        return self._end - self._loop.time()


class Topics:
    """The topics of the cluster as this broker may change them."""

    def __init__(
        self,
        config: BrokerConfig,
        zookeeper: ZooKeeperClient,
        metadata: MetadataCache,
        check_clients_may_grow: Callable[[str], Awaitable[None]],
    ) -> None:
        """`check_clients_may_grow(topic)` raises a KafkaError for what clients must not add partitions to."""
        self._check_clients_may_grow = check_clients_may_grow
        self._config = config
        self._zookeeper = zookeeper
        self._metadata = metadata
        self._defaults = LogConfig.from_broker(config)
        self._waiting: set[asyncio.Event] = set()
        metadata.on_change(self._look_again)

    async def create(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool
    ) -> list[TopicResult]:
        """Create (or only check) topics, each on its own; in the order given."""
        work = self._create_all(topics, timeout_ms=timeout_ms, validate_only=validate_only)
        return await _in_time(work, [topic.name for topic in topics], timeout_ms)

    async def _create_all(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool
    ) -> list[TopicResult]:
        deadline = _Deadline(0 if validate_only else timeout_ms)
        doomed = await self._until_removed([topic.name for topic in topics], deadline)
        results = []
        for topic in topics:
            # A request may name thousands, and others wait.
            await asyncio.sleep(0)
            results.append(await self._create(topic, doomed, validate_only=validate_only))
        if validate_only:
            return results
        made = [r.name for r in results if r.name is not None and r.error is ErrorCode.NONE]
        counts = {r.name: r.partition_count for r in results}
        late = await self._until(made, lambda topic: self._is_led(topic, counts[topic]), deadline)
        return [_timed_out(r) if r.name in late and r.error is ErrorCode.NONE else r for r in results]

    async def delete(self, names: Sequence[str], *, timeout_ms: int) -> list[TopicResult]:
        """Delete topics, each on its own; in the order given."""
        return await _in_time(self._delete_all(names, timeout_ms), names, timeout_ms)

    async def _delete_all(self, names: Sequence[str], timeout_ms: int) -> list[TopicResult]:
        deadline = _Deadline(timeout_ms)
        results = [await self._delete(name) for name in names]
        done = [r.name for r in results if r.name is not None and r.error is ErrorCode.NONE]
        late = await self._until(done, lambda topic: self._metadata.topics(topic) is None, deadline)
        await self._until_removed(set(done) - late, deadline)
        return [_timed_out(r) if r.name in late and r.error is ErrorCode.NONE else r for r in results]

    async def grow(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        timeout_ms: int,
        validate_only: bool,
        by_client: bool = False,
    ) -> TopicResult:
        """Add partitions up to `count`; `assignments` are those of the new ones."""
        work = self._grow_one(name, count, assignments, timeout_ms, validate_only, by_client)
        (result,) = await _in_time(work, [name], timeout_ms)
        return result

    async def _grow_one(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        timeout_ms: int,
        validate_only: bool,
        by_client: bool,
    ) -> list[TopicResult]:
        deadline = _Deadline(timeout_ms)
        try:
            if by_client:
                await self._check_clients_may_grow(name)
            await self._grow(name, count, assignments, validate_only=validate_only)
        except KafkaError as error:
            return [TopicResult(name=name, error=error.code, message=str(error))]
        result = TopicResult(name=name, partition_count=count)
        if validate_only:
            return [result]
        late = await self._until([name], lambda topic: self._is_led(topic, count), deadline)
        return [_timed_out(result) if late else result]

    async def _grow(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        znode = await self._zookeeper.get(paths.topic(name))
        if znode is None or self._metadata.topics(name) is None:
            raise UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
        old = paths.decode_topic(name, znode.data)
        if any(assignment.adding or assignment.removing for assignment in old.partitions.values()):
            raise ReassignmentInProgressError(
                f"A partition reassignment is in progress for the topic '{name}'."
            )
        added = self._added_partitions(old, count, assignments)
        if validate_only:
            return
        partitions = {**old.partitions, **{p: ReplicaAssignment(replicas=r) for p, r in added.items()}}
        grown = TopicAssignment(topic=name, topic_id=old.topic_id, partitions=partitions)
        try:
            await self._zookeeper.set(paths.topic(name), paths.encode_topic(grown), znode.version)
        except (NoZnodeError, ZnodeVersionError):
            raise InvalidRequestError(f"The topic '{name}' was changed meanwhile, try again.") from None
        log.info("partitions added", topic=name, partitions=count)

    def _added_partitions(
        self, old: TopicAssignment, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> dict[int, tuple[int, ...]]:
        present = len(old.partitions)
        if count == present:
            raise InvalidPartitionsError(f"Topic already has {present} partitions.")
        if count < present:
            raise InvalidPartitionsError(
                f"Topic currently has {present} partitions, which is higher than the requested {count}."
            )
        _check_count(count)
        brokers = {b.broker_id: b.rack for b in self._metadata.brokers.values()}
        first = old.partitions[0].replicas
        if assignments is None:
            start = next((i for i, b in enumerate(sorted(brokers)) if b >= first[0]), 0)
            return assign_replicas(
                brokers, count - present, len(first), start=start, shift=start, first_partition=present
            )
        if len(assignments) != count - present:
            raise InvalidReplicaAssignmentError(
                f"Increasing the number of partitions by {count - present} "
                f"but {len(assignments)} assignments provided."
            )
        partitions = {present + i: tuple(replicas) for i, replicas in enumerate(assignments)}
        if any(len(replicas) != len(first) for replicas in partitions.values()):
            raise InvalidReplicaAssignmentError("All partitions should have the same number of replicas")
        self._check_assignments(partitions)
        return partitions

    def internal(self, name: str) -> NewTopic:
        """A topic with the broker's defaults, or an internal one with its own."""
        config = self._config
        if name == OFFSETS_TOPIC:
            return NewTopic(
                name=name,
                partition_count=config.groups.offsets_topic_num_partitions,
                replication_factor=config.groups.offsets_topic_replication_factor,
                configs={
                    "compression.type": "producer",
                    "cleanup.policy": "compact",
                    "segment.bytes": str(config.groups.offsets_topic_segment_bytes),
                },
            )
        if name == TRANSACTIONS_TOPIC:
            return NewTopic(
                name=name,
                partition_count=config.transactions.transaction_state_log_num_partitions,
                replication_factor=config.transactions.transaction_state_log_replication_factor,
                configs={
                    "compression.type": "uncompressed",
                    "cleanup.policy": "compact",
                    "min.insync.replicas": str(config.transactions.transaction_state_log_min_isr),
                    "segment.bytes": str(config.transactions.transaction_state_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                },
            )
        return NewTopic(name=name)

    async def _create(self, topic: NewTopic, doomed: set[str], *, validate_only: bool) -> TopicResult:
        try:
            partitions = self._checked(topic, doomed)
            configs = self._checked_configs(topic)
            assignment = TopicAssignment(
                topic=topic.name,
                topic_id=ZERO_UUID if validate_only else uuid4(),
                partitions={p: ReplicaAssignment(replicas=r) for p, r in partitions.items()},
            )
            if not validate_only:
                await self._write(assignment, configs)
        except KafkaError as error:
            return TopicResult(name=topic.name, error=error.code, message=str(error))
        return TopicResult(
            name=topic.name,
            topic_id=assignment.topic_id,
            partition_count=len(assignment.partitions),
            replication_factor=len(assignment.partitions[0].replicas),
        )

    async def _write(self, assignment: TopicAssignment, configs: dict[str, str]) -> None:
        topic = assignment.topic
        config_path = paths.entity_config("topics", topic)
        data = paths.encode_config(configs)
        try:
            await self._zookeeper.create(config_path, data)
        except ZnodeExistsError:
            if await self._zookeeper.get(paths.topic(topic)) is not None:
                raise TopicExistsError(f"Topic '{topic}' already exists.") from None
            await self._zookeeper.set(config_path, data)
        wanted = paths.encode_topic(assignment)
        try:
            await self._zookeeper.create(paths.topic(topic), wanted)
        except ZnodeExistsError:
            found = await self._zookeeper.get(paths.topic(topic))
            if found is None or found.data != wanted:
                raise TopicExistsError(f"Topic '{topic}' already exists.") from None
        log.info("topic created", topic=topic, partitions=len(assignment.partitions))

    def _checked(self, topic: NewTopic, doomed: set[str]) -> dict[int, tuple[int, ...]]:
        """The replicas of a topic that may be created, as far as its configuration allows; checked in Kafka's order."""
        if self._metadata.topics(topic.name) is not None:
            raise TopicExistsError(f"Topic '{topic.name}' already exists.")
        nulls = sorted(name for name, value in topic.configs.items() if value is None)
        if nulls:
            raise InvalidConfigError(f"Null value not supported for topic configs: {','.join(nulls)}")
        partitions = self._assignment(topic)
        check_name(topic.name)
        if topic.name in doomed:
            raise TopicExistsError(f"Topic '{topic.name}' is marked for deletion.")
        self._check_collisions(topic.name)
        if topic.assignments:
            self._check_assignments(partitions)
            if list(partitions) != list(range(len(partitions))):
                raise InvalidReplicaAssignmentError(
                    "partitions should be a consecutive 0-based integer sequence"
                )
        return partitions

    def _check_collisions(self, name: str) -> None:
        if "." in name or "_" in name:
            unified = name.replace(".", "_")
            colliding = [t for t in self._metadata.topic_names() if t.replace(".", "_") == unified]
            if colliding:
                raise InvalidTopicError(
                    f"Topic '{name}' collides with existing topics: {', '.join(colliding)}"
                )

    def _checked_configs(self, topic: NewTopic) -> dict[str, str]:
        configs = {name: value for name, value in topic.configs.items() if value is not None}
        self._defaults.with_overrides(configs)
        return configs

    def _assignment(self, topic: NewTopic) -> dict[int, tuple[int, ...]]:
        if topic.assignments:
            return self._manual_assignment(topic)
        count = topic.partition_count
        factor = topic.replication_factor
        if count == -1:
            count = self._config.topics.num_partitions
        if factor == -1:
            factor = self._config.topics.default_replication_factor
        _check_count(count)
        brokers = {b.broker_id: b.rack for b in self._metadata.brokers.values()}
        size = max(1, len(brokers))
        partitions = assign_replicas(
            brokers, count, factor, start=random.randrange(size), shift=random.randrange(size)
        )
        _check_factor(factor)
        return partitions

    def _manual_assignment(self, topic: NewTopic) -> dict[int, tuple[int, ...]]:
        if topic.partition_count != -1 or topic.replication_factor != -1:
            raise InvalidRequestError(
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time."
            )
        _check_count(len(topic.assignments))
        return {p: tuple(brokers) for p, brokers in sorted(topic.assignments.items())}

    def _check_assignments(self, partitions: dict[int, tuple[int, ...]]) -> None:
        if len({len(brokers) for brokers in partitions.values()}) != 1:
            raise InvalidReplicaAssignmentError("All partitions should have the same number of replicas")
        if any(len(set(brokers)) != len(brokers) or not brokers for brokers in partitions.values()):
            raise InvalidReplicaAssignmentError("Duplicate or missing replicas in an assignment")
        named = {broker for brokers in partitions.values() for broker in brokers}
        unknown = sorted(named - self._metadata.brokers.keys())
        if unknown:
            raise InvalidReplicaAssignmentError(f"Unknown broker(s) in replica assignment: {unknown}.")
        _check_factor(len(next(iter(partitions.values()))))

    async def _delete(self, name: str) -> TopicResult:
        try:
            if not self._config.topics.delete_topic_enable:
                raise TopicDeletionDisabledError("Topic deletion is disabled: set delete.topic.enable=true.")
            if self._metadata.topics(name) is None:
                raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
            await self._zookeeper.ensure(paths.delete_topic(name))
        except KafkaError as error:
            return TopicResult(name=name, error=error.code, message=str(error))
        return TopicResult(name=name)

    def _is_led(self, topic: str, count: int = 1) -> bool:
        partitions = self._metadata.topics(topic) or {}
        return len(partitions) >= count and all(p.leader != NO_LEADER for p in partitions.values())

    async def _until_removed(self, names: Iterable[str], deadline: _Deadline) -> set[str]:
        """Wait for the end of the deletions of these topics; answers those that are not over: they wait for
        a broker that is away, or the time ran out.
        """
        doomed = set(names) & set(await self._zookeeper.children(paths.DELETE_TOPICS))
        if not doomed or deadline.left_seconds <= 0:
            return doomed
        topics = await read_topics(self._zookeeper, sorted(doomed))
        present = set(doomed)

        def listed(names: list[str]) -> None:
            nonlocal present
            present = doomed & set(names)
            self._look_again()

        subscription = self._zookeeper.watch_children(paths.DELETE_TOPICS, listed)
        try:
            await self._until(
                doomed,
                lambda t: t not in present or self._is_held_up(topics.get(t)),
                deadline,
            )
        finally:
            subscription.cancel()
        return present

    async def _until(
        self, names: Iterable[str], holds: Callable[[str], bool], deadline: _Deadline
    ) -> set[str]:
        """Wait for `holds(topic)` of each; answers those for which the time ran out."""
        pending = {name for name in names if not holds(name)}
        if not pending or deadline.left_seconds <= 0:
            return pending
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(deadline.left_seconds):
                while pending:
                    await changed.wait()
                    changed.clear()
                    pending = {name for name in pending if not holds(name)}
        except TimeoutError:
            return pending
        finally:
            self._waiting.discard(changed)
        return pending

    def _is_held_up(self, topic: TopicAssignment | None) -> bool:
        """Whether a broker that holds part of the topic is away."""
        partitions = {} if topic is None else topic.partitions
        return any(b not in self._metadata.brokers for a in partitions.values() for b in a.replicas)

    def _look_again(self) -> None:
        for event in self._waiting:
            event.set()


async def _in_time(
    work: Coroutine[Any, Any, list[TopicResult]], names: Iterable[str], timeout_ms: int
) -> list[TopicResult]:
    """What `work` answers; REQUEST_TIMED_OUT for each name when ZooKeeper is away for too long, or this broker stops."""
    try:
        async with asyncio.timeout((max(timeout_ms, 0) + ZOOKEEPER_MS_MAX) / 1000):
            return await work
    except (TimeoutError, ZooKeeperClosedError):
        return [_timed_out(TopicResult(name=name)) for name in names]


def _check_count(count: int) -> None:
    if count > PARTITION_COUNT_MAX:
        raise InvalidPartitionsError(f"Number of partitions must be at most {PARTITION_COUNT_MAX}.")


def _check_factor(factor: int) -> None:
    if factor > 1:
        raise InvalidReplicationFactorError(
            f"Replication factor: {factor} is not served yet; use a replication factor of 1."
        )


def _timed_out(result: TopicResult) -> TopicResult:
    error = RequestTimedOutError("The request timed out.")
    return TopicResult(name=result.name, error=error.code, message=str(error), topic_id=result.topic_id)
