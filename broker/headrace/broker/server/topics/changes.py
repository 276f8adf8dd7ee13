"""Creating and deleting topics: checks, the znodes that state the wish, and the wait until it came true.

Invariants: nothing is written for a topic that fails a check; the configuration is written before the
topic, so that no broker opens its log without it; an answer without error means that this broker's
metadata cache shows it. A deletion is answered when the name is free again, unless a broker that is away
holds it up, and a new topic waits for its namesake's deletion under the same terms. What a client asks the controller once
it has its answer comes after what that answer is about, which Kafka's controller has from the order of ZooKeeper's words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.coordinators.topics import offsets_topic, transactions_topic
from headrace.broker.errors import (
    ErrorCode,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    ReassignmentInProgressError,
    RequestTimedOutError,
    TopicDeletionDisabledError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from headrace.broker.quotas.mutations import UNLIMITED, Allowance
from headrace.broker.replication.model import (
    ReplicaAssignment,
    TopicAssignment,
)
from headrace.broker.replication.topic_requests import NewTopic, TopicResult, is_legal_name
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.topics.checks import TopicChecks
from headrace.broker.server.topics.waits import Deadline, TopicWaits
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.znodes import NoZnodeError, ZnodeExistsError, ZnodeVersionError, ZooKeeperClosedError

logger = get_logger(__name__)
ZOOKEEPER_MS_MAX = 30_000
"""What ZooKeeper is given beyond the time that a request grants."""


class Topics:
    """The topics of the cluster as this broker may change them."""

    def __init__(
        self,
        config: BrokerConfig,
        zookeeper: ZooKeeperClient,
        metadata: MetadataCache,
        tasks: Tasks,
        check_clients_may_grow: Callable[[str], Awaitable[None]],
    ) -> None:
        """`check_clients_may_grow(topic)` raises a KafkaError for what clients must not add partitions to."""
        self._check_clients_may_grow = check_clients_may_grow
        self._config = config
        self._zookeeper = zookeeper
        self._metadata = metadata
        self._tasks = tasks
        self._checks = TopicChecks(config, metadata)
        self._waits = TopicWaits(zookeeper, metadata)
        self._creating: set[str] = set()
        self._written: Callable[[Collection[str]], None] = lambda topics: None
        self._doomed: Callable[[], None] = lambda: None
        own = offsets_topic(config.groups), transactions_topic(config.transactions)
        self._of_coordinators = {topic.name: topic for topic in own}

    def on_change(self, written: Callable[[Collection[str]], None], doomed: Callable[[], None]) -> None:
        """Call `written(topics)` when their znodes are made or changed, and `doomed()` when some are to go, before any answer."""
        self._written, self._doomed = written, doomed

    async def create(
        self,
        topics: Sequence[NewTopic],
        *,
        timeout_ms: int,
        validate_only: bool = False,
        allowance: Allowance = UNLIMITED,
    ) -> list[TopicResult]:
        """Create (or only check) topics, each on its own; in the order given. Their partitions are taken from `allowance`.

        Answers when the local metadata cache shows them led, or the time is over.
        """
        work = self._create_all(topics, timeout_ms, validate_only, allowance)
        return await _in_time(work, [topic.name for topic in topics], timeout_ms)

    async def _create_all(
        self, topics: Sequence[NewTopic], timeout_ms: int, validate_only: bool, allowance: Allowance
    ) -> list[TopicResult]:
        deadline = Deadline(0 if validate_only else timeout_ms)
        doomed = await self._waits.until_removed([topic.name for topic in topics], deadline)
        results = []
        for topic in topics:
            # A request may name thousands, and others wait.
            await asyncio.sleep(0)
            results.append(await self._create(topic, doomed, allowance, validate_only=validate_only))
        if validate_only:
            return results
        made = [r.name for r in results if r.name is not None and r.error is ErrorCode.NONE]
        self._written(made)
        counts = {r.name: r.partition_count for r in results}
        late = await self._waits.until(made, lambda topic: self._waits.is_led(topic, counts[topic]), deadline)
        return [_timed_out(r) if r.name in late and r.error is ErrorCode.NONE else r for r in results]

    async def delete(
        self, names: Sequence[str], *, timeout_ms: int, allowance: Allowance = UNLIMITED
    ) -> list[TopicResult]:
        """Delete topics, each on its own; in the order given. Their partitions are taken from `allowance`.

        Answers when the local metadata cache lost them, or the time is over.
        """
        return await _in_time(self._delete_all(names, timeout_ms, allowance), names, timeout_ms)

    async def _delete_all(
        self, names: Sequence[str], timeout_ms: int, allowance: Allowance
    ) -> list[TopicResult]:
        deadline = Deadline(timeout_ms)
        results = [await self._delete(name, allowance) for name in names]
        done = [r.name for r in results if r.name is not None and r.error is ErrorCode.NONE]
        if done:
            self._doomed()
        late = await self._waits.until(done, lambda topic: self._metadata.topics(topic) is None, deadline)
        await self._waits.until_removed(set(done) - late, deadline)
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
        allowance: Allowance = UNLIMITED,
    ) -> TopicResult:
        """Add partitions up to `count`; `assignments` are those of the new ones, which are taken from `allowance`.

        Answers when the local metadata cache shows them led, or the time is over. A mirror's copy does not grow for a
        client.
        """
        work = self._grow_one(name, count, assignments, timeout_ms, validate_only, by_client, allowance)
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
        allowance: Allowance,
    ) -> list[TopicResult]:
        deadline = Deadline(timeout_ms)
        try:
            if by_client:
                await self._check_clients_may_grow(name)
            await self._grow(name, count, assignments, allowance, validate_only=validate_only)
        except KafkaError as error:
            return [TopicResult(name=name, error=error.code, message=str(error))]
        result = TopicResult(name=name, partition_count=count)
        if validate_only:
            return [result]
        self._written([name])
        late = await self._waits.until([name], lambda topic: self._waits.is_led(topic, count), deadline)
        return [_timed_out(result) if late else result]

    async def _grow(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        allowance: Allowance,
        *,
        validate_only: bool,
    ) -> None:
        znode = await self._zookeeper.get(paths.topic(name))
        if znode is not None and await self._zookeeper.get(paths.delete_topic(name)) is not None:
            raise InvalidTopicError("The topic is queued for deletion.")
        if znode is None or self._metadata.topics(name) is None:
            raise UnknownTopicOrPartitionError(f"The topic '{name}' does not exist.")
        old = paths.decode_topic(name, znode.data)
        if any(assignment.adding or assignment.removing for assignment in old.partitions.values()):
            raise ReassignmentInProgressError(
                f"A partition reassignment is in progress for the topic '{name}'."
            )
        added = self._checks.added_partitions(old, count, assignments)
        if validate_only:
            return
        allowance.take(len(added))
        partitions = {**old.partitions, **{p: ReplicaAssignment(replicas=r) for p, r in added.items()}}
        grown = TopicAssignment(topic=name, topic_id=old.topic_id, partitions=partitions)
        try:
            await self._zookeeper.set(paths.topic(name), paths.encode_topic(grown), znode.version)
        except (NoZnodeError, ZnodeVersionError):
            raise InvalidRequestError(f"The topic '{name}' was changed meanwhile, try again.") from None
        logger.info("partitions added", topic=name, partitions=count)

    async def _create(
        self, topic: NewTopic, doomed: set[str], allowance: Allowance, *, validate_only: bool
    ) -> TopicResult:
        try:
            partitions = self._checks.partitions_of(topic, doomed)
            configs = self._checks.configs_of(topic)
            assignment = TopicAssignment(
                topic=topic.name,
                topic_id=ZERO_UUID if validate_only else uuid4(),
                partitions={p: ReplicaAssignment(replicas=r) for p, r in partitions.items()},
            )
            if not validate_only:
                allowance.take(len(partitions))
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
        logger.info("topic created", topic=topic, partitions=len(assignment.partitions))

    async def _delete(self, name: str, allowance: Allowance) -> TopicResult:
        try:
            if not self._config.topics.delete_topic_enable:
                raise TopicDeletionDisabledError("Topic deletion is disabled: set delete.topic.enable=true.")
            # A controller may have told of another name, which as a path would be of several znodes.
            partitions = self._metadata.topics(name)
            if partitions is None or not is_legal_name(name):
                raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
            allowance.take(len(partitions))
            await self._zookeeper.ensure(paths.delete_topic(name))
        except KafkaError as error:
            return TopicResult(name=name, error=error.code, message=str(error))
        return TopicResult(name=name)

    async def await_leaders(
        self, leaders: Mapping[PartitionKey, int], *, timeout_ms: int
    ) -> set[PartitionKey]:
        """Wait until the local metadata cache shows these leaders; answers those for which the time ran out."""
        metadata = self._metadata

        def is_shown(key: PartitionKey) -> bool:
            found = metadata.partition(*key)
            return found is not None and found.leader == leaders[key]

        return await self._waits.until(leaders, is_shown, Deadline(timeout_ms))

    def auto_create(self, topics: Sequence[str], allowance: Allowance = UNLIMITED) -> None:
        """Begin creating topics with the broker's defaults (internal ones with theirs), unless under way.

        Not before the controller has told this broker of the cluster: until then none of its topics is known here.
        """
        if not self._metadata.brokers:
            return
        wanted = [topic for topic in topics if topic not in self._creating]
        if wanted:
            self._creating.update(wanted)
            self._tasks.start("auto-create", self._auto_create(wanted, allowance))

    def error_on_demand(self, name: str) -> ErrorCode:
        """Tell why a topic cannot be created with the broker's defaults; else LEADER_NOT_AVAILABLE, as it soon has one."""
        if self._metadata.brokers:
            try:
                self._checks.partitions_of(self._wanted(name), set())
            except KafkaError as error:
                return error.code
        return ErrorCode.LEADER_NOT_AVAILABLE

    async def _auto_create(self, names: Sequence[str], allowance: Allowance) -> None:
        try:
            topics = [self._wanted(name) for name in names]
            timeout_ms = self._config.network.request_timeout_ms
            for result in await self.create(topics, timeout_ms=timeout_ms, allowance=allowance):
                if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    logger.warning("topic not created on demand", topic=result.name, reason=result.message)
        finally:
            self._creating.difference_update(names)

    def _wanted(self, name: str) -> NewTopic:
        """A topic with the broker's defaults, or one of coordinators with its own."""
        own = self._of_coordinators.get(name)
        if own is None:
            return NewTopic(name=name)
        return NewTopic(
            name=name,
            partition_count=own.partition_count,
            replication_factor=own.replication_factor,
            configs=dict(own.configs),
        )


async def _in_time(
    work: Coroutine[Any, Any, list[TopicResult]], names: Iterable[str], timeout_ms: int
) -> list[TopicResult]:
    """What `work` answers; REQUEST_TIMED_OUT for each name when ZooKeeper is away for too long, or this broker stops."""
    try:
        async with asyncio.timeout((max(timeout_ms, 0) + ZOOKEEPER_MS_MAX) / 1000):
            return await work
    except (TimeoutError, ZooKeeperClosedError):
        return [_timed_out(TopicResult(name=name)) for name in names]


def _timed_out(result: TopicResult) -> TopicResult:
    error = RequestTimedOutError("The request timed out.")
    return TopicResult(name=result.name, error=error.code, message=str(error), topic_id=result.topic_id)
