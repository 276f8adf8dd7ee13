"""This broker as a member of its cluster: ZooKeeper session, registration, election, topics, dynamic configuration.

How a broker starts:
    cluster = Cluster(config, clock, metadata, tasks, is_mirrored)
    await cluster.connect(stored_broker_id)   # session, parent znodes, cluster id, broker id, configurations
    logs, _ = open_logs(…, broker_id=cluster.broker_id, overrides=cluster.topic_config)
    await cluster.join(Partitions(cluster.broker_id, logs, metadata, clock), endpoints)
    … serve …
    await cluster.leave()                     # controlled shutdown, then the session ends

Invariants: requests of the controller are performed in the order in which they came; while ZooKeeper is
away the broker goes on with what the controller said last; a new session registers the broker again before
anything else.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from headrace.broker import config_copies, config_dynamic
from headrace.broker.clock import Clock
from headrace.broker.config import BrokerConfig, LogConfig, known_overrides
from headrace.broker.errors import (
    ErrorCode,
    KafkaError,
    StaleControllerEpochError,
    UnknownTopicOrPartitionError,
)
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.replication import requests
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import Broker, Endpoint
from headrace.broker.replication.topic_requests import NewTopic, TopicResult
from headrace.broker.server.controller import ControllerOffice
from headrace.broker.server.dynamic_config import BROKERS, TOPICS, DynamicConfigs
from headrace.broker.server.mailbox import Mailbox
from headrace.broker.server.metadata import MetadataCache, partition_states
from headrace.broker.server.peers import PeerLink, Peers
from headrace.broker.server.registration import PAUSE_SECONDS, Registration
from headrace.broker.server.replicas import Partitions
from headrace.broker.server.topics import Topics
from headrace.broker.server.zookeeper_offsets import ZooKeeperOffsets
from headrace.broker.server.zookeeper_watch import ZooKeeperWatch
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks
from headrace.broker.wire.api import (
    k04_leader_and_isr,
    k05_stop_replica,
    k06_update_metadata,
    k07_controlled_shutdown,
)
from headrace.broker.zk import paths
from headrace.broker.zk.client import (
    SessionListener,
    ZnodeVersionError,
    ZooKeeperClient,
    ZooKeeperClosedError,
    ZooKeeperError,
)

log = get_logger(__name__)
T = TypeVar("T")
PRODUCER_ID_BLOCK_SIZE = 1000
LEAVE_SECONDS_MAX = 10.0


class Cluster(SessionListener):
    """The broker's membership; all methods run on the broker's loop."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: MetadataCache,
        tasks: Tasks,
        is_mirrored: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        """`is_mirrored(topic)`: whether this broker's configuration has a mirror make and write topics of that name."""
        self.is_mirrored = is_mirrored
        self._config = self.config = config
        self._clock = clock
        self._metadata = metadata
        self._tasks = tasks
        zookeeper = config.zookeeper
        self._zookeeper = ZooKeeperClient(
            zookeeper.zookeeper_connect or "",
            session_timeout_ms=zookeeper.zookeeper_session_timeout_ms,
            connection_timeout_ms=zookeeper.zookeeper_connection_timeout_ms
            or zookeeper.zookeeper_session_timeout_ms,
        )
        self.watch = ZooKeeperWatch(clock, zookeeper.zookeeper_connect or "")
        self._zookeeper.add_listener(self.watch)
        self._mailbox = Mailbox(self._work_failed)
        self._configs = DynamicConfigs(self._zookeeper, self._mailbox, clock)
        self.consumer_offsets = ZooKeeperOffsets(self._zookeeper)
        self._topics = Topics(config, self._zookeeper, metadata, self._check_is_no_copy)
        self._control = asyncio.Lock()
        self._config_callbacks: list[Callable[[BrokerConfig], None]] = []
        self._creating: set[str] = set()
        self._partitions: Partitions | None = None
        self._registration: Registration | None = None
        self._office: ControllerOffice | None = None
        self.broker_id = config.broker_id
        self.cluster_id = ""

    async def connect(self, stored_broker_id: int | None = None) -> None:
        """Open the ZooKeeper session; afterwards `broker_id`, `cluster_id` and `topic_config` are known.

        `stored_broker_id` is the id in this broker's `meta.properties`: it stands when `broker.id` is -1.
        Raises ZooKeeperError with a sentence.
        """
        self.watch.connecting(asyncio.get_running_loop())
        await self._zookeeper.connect()
        for path in paths.PERSISTENT_PATHS:
            await self._zookeeper.ensure(path)
        self.cluster_id = await self._find_cluster_id()
        self._metadata.set_cluster_id(self.cluster_id)
        if self.broker_id < 0:
            self.broker_id = (
                stored_broker_id if stored_broker_id is not None else await self._next_broker_id()
            )
        await self._configs.load(str(self.broker_id))
        _warn_of_unknown(self._configs.topics())
        self.config = self._effective_config()

    async def join(self, partitions: Partitions, endpoints: Sequence[Endpoint]) -> None:
        """Register this broker under its advertised endpoints and run for controller; returns once
        registered.

        Raises ZooKeeperError when another broker uses this broker's id.
        """
        self._partitions = partitions
        # What is still on its way to an earlier life of this broker is none of its business.
        partitions.broker_epoch = self._zookeeper.last_zxid + 1
        self._tasks.start("cluster", self._mailbox.run())
        broker = Broker(
            broker_id=self.broker_id,
            epoch=-1,
            endpoints=tuple(endpoints),
            rack=self._config.network.broker_rack,
        )
        self._registration = Registration(self._zookeeper, self._clock, broker)
        await self._registration.begin(2 * self._config.zookeeper.zookeeper_session_timeout_ms)
        self._registered()
        self._zookeeper.add_listener(self)
        self._configs.on_change(self._config_changed)
        self._configs.on_broker_change(self._broker_config_changed)
        self._configs.watch()
        self._office = ControllerOffice(
            self._zookeeper,
            self._clock,
            self._tasks,
            broker_id=self.broker_id,
            listener=self._config.inter_broker_listener,
            make=self._make_controller,
            peers=self._make_peers,
        )
        self._office.start()

    async def leave(self) -> None:
        """Have others lead what they can, then end the session; bounded by `LEAVE_SECONDS_MAX`."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS_MAX):
                if self._config.replication.controlled_shutdown_enable and self._partitions is not None:
                    await self._shut_down_controlled()
        except (OSError, KafkaError, ZooKeeperError) as error:
            log.warning("stopping without the controller's consent", reason=repr(error))
        self.watch.close()
        await self._zookeeper.close()

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._office is not None and self._office.is_active

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before it."""
        return -1 if self._registration is None else self._registration.epoch

    def topic_config(self, topic: str) -> dict[str, str]:
        """What `/config/topics/<t>` holds of the overrides that have an effect here, from memory."""
        return self._in_effect(topic, self._configs.of(topic))

    def _in_effect(self, topic: str, stored: Mapping[str, str]) -> dict[str, str]:
        """A copy that is not mirrored any more is a topic like others."""
        found = known_overrides(stored)
        if not self.is_mirrored(topic):
            found.pop(config_copies.MIRROR_CLUSTERS, None)
        return found

    async def _check_is_no_copy(self, topic: str) -> None:
        """Raises PolicyViolationError for a mirror's copy."""
        stored = (await self._configs.stored([topic]))[topic]
        if config_copies.is_mirror_copy(self._in_effect(topic, stored)):
            raise config_copies.refusal(topic)

    async def stored_topic_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """The topics' overrides as `/config/topics` holds them now: a change shows as soon as it was answered."""
        return await self._configs.stored(topics)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool = False
    ) -> list[TopicResult]:
        """Create topics; answers when the local metadata cache shows them led, or the time is over."""
        return await self._topics.create(topics, timeout_ms=timeout_ms, validate_only=validate_only)

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int) -> list[TopicResult]:
        """Delete topics; answers when the local metadata cache lost them or the time is over."""
        return await self._topics.delete(names, timeout_ms=timeout_ms)

    async def create_partitions(
        self,
        topic: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        timeout_ms: int,
        validate_only: bool,
        by_client: bool = False,
    ) -> TopicResult:
        """Grow a topic to `count` partitions; answers when the local metadata cache shows them led.

        A mirror's copy does not grow for a client.
        """
        return await self._topics.grow(
            topic,
            count,
            assignments,
            timeout_ms=timeout_ms,
            validate_only=validate_only,
            by_client=by_client,
        )

    async def alter_topic_config(
        self, topic: str, change: Callable[[dict[str, str]], Mapping[str, str]], *, validate_only: bool
    ) -> None:
        """Replace a topic's overrides by `change(overrides)`.

        Raises UnknownTopicOrPartitionError, InvalidConfigError and whatever `change` raises; nothing changed then.
        """

        def checked(overrides: dict[str, str]) -> Mapping[str, str]:
            changed = change(overrides)
            # What Apache Kafka stored for itself stays.
            new = {name: value for name, value in changed.items() if overrides.get(name) != value}
            LogConfig.from_broker(self.config).with_overrides({**known_overrides(changed), **new})
            return changed

        if self._metadata.topics(topic) is None:
            # What is wrong with the change itself is said first, as Kafka does.
            change({})
            raise UnknownTopicOrPartitionError(f"The topic '{topic}' does not exist.")
        if validate_only:
            checked((await self._configs.stored([topic]))[topic])
        else:
            await self._configs.alter(TOPICS, topic, checked)

    @property
    def static_properties(self) -> Mapping[str, str]:
        """What `server.properties` says."""
        return self._config.properties

    def broker_overrides(self, broker: str) -> dict[str, str]:
        """The overrides of this broker (by its id) or of all brokers (`<default>`) that are in effect."""
        return config_dynamic.usable(self._configs.of_broker(broker))

    async def alter_broker_config(
        self, broker: str, change: Callable[[dict[str, str]], Mapping[str, str]], *, validate_only: bool
    ) -> None:
        """Replace the overrides of this broker (by its id) or of all brokers (`<default>`) by `change(overrides)`.

        Raises InvalidRequestError and whatever `change` raises; nothing changed then.
        """

        def checked(overrides: dict[str, str]) -> Mapping[str, str]:
            changed = change(overrides)
            config_dynamic.check(changed)
            config_dynamic.check_step(self.config, changed)
            return changed

        if validate_only:
            checked(dict(self._configs.of_broker(broker)))
        else:
            await self._configs.alter(BROKERS, broker, checked)

    def on_broker_config(self, callback: Callable[[BrokerConfig], None]) -> None:
        """Call `callback(config)` after each change of the configuration in effect, `config`."""
        self._config_callbacks.append(callback)

    def auto_create(self, topics: Sequence[str]) -> None:
        """Begin creating topics with the broker's defaults (internal ones with theirs), unless under way.

        Not before the controller has told this broker of the cluster: until then none of its topics is known here.
        """
        if not self._metadata.brokers:
            return
        wanted = [topic for topic in topics if topic not in self._creating]
        if wanted:
            self._creating.update(wanted)
            self._tasks.start("auto-create", self._auto_create(wanted))

    async def allocate_producer_id_block(self) -> tuple[int, int]:
        """(first id, count) of a block that no other broker has or will get."""
        while True:
            znode = await self._zookeeper.get(paths.PRODUCER_ID_BLOCK)
            if znode is None:
                await self._zookeeper.ensure(paths.PRODUCER_ID_BLOCK)
                continue
            first = paths.decode_producer_id_block(znode.data)[1] + 1 if znode.data else 0
            last = first + PRODUCER_ID_BLOCK_SIZE - 1
            data = paths.encode_producer_id_block(self.broker_id, first, last)
            try:
                await self._zookeeper.set(paths.PRODUCER_ID_BLOCK, data, znode.version)
            except ZnodeVersionError:
                continue
            return first, PRODUCER_ID_BLOCK_SIZE

    def later(self, name: str, work: Awaitable[T]) -> Deferred[T]:
        """The outcome of `work`, which runs in a task of the broker."""
        deferred: Deferred[T] = Deferred()

        async def run() -> None:
            try:
                result = await work
            except Exception as error:
                deferred.fail(error)
            else:
                deferred.complete(result)

        self._tasks.start(name, run())
        return deferred

    async def control(self, key: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """Perform a LeaderAndIsr, StopReplica or UpdateMetadata request in its turn; answers the response.

        What fails for a reason that nobody foresaw is answered too: the controller's next word must get through.
        """
        try:
            async with self._control:
                return await self._controlled(key, request)
        except ZooKeeperClosedError:
            return {"error_code": ErrorCode.BROKER_NOT_AVAILABLE}
        except Exception as error:
            log.failure("a request of the controller failed", error, broker=self.broker_id, key=key)
            return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR}

    async def _controlled(self, key: int, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._partitions is not None, "join before serving"
        if key == k04_leader_and_isr.API.key:
            await self._configs.learn(self._partitions.newness(request))
            return await self._partitions.leader_and_isr(request)
        if key == k05_stop_replica.API.key:
            return await self._partitions.stop_replica(request)
        assert key == k06_update_metadata.API.key, f"key {key} is not the controller's"
        return self._update_metadata(request)

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[tuple[str, int]]:
        """ControlledShutdown: what the broker still leads.

        Raises StaleControllerEpochError, BrokerNotAvailableError and StaleBrokerEpochError.
        """
        if self._office is None:
            raise StaleControllerEpochError("This is not the correct controller for this cluster.")
        return await self._office.shut_down(broker_id, broker_epoch)

    def log_directory_failed(self) -> None:
        """Have the controller ask which replicas of this broker are out of reach (KIP-112)."""
        event = paths.encode_log_directory_event(self.broker_id)
        self._mailbox.post(
            lambda: self._zookeeper.create(paths.LOG_DIRECTORY_EVENT_PREFIX, event, sequence=True)
        )

    def session_started(self) -> None:
        """The last session is over: register again, and run for controller again."""
        log.warning("new ZooKeeper session, this broker registers again", broker=self.broker_id)
        if self._office is not None:
            self._office.session_started()
        self._mailbox.post(self._register_again)

    def _update_metadata(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._partitions is not None, "join before serving"
        error = self._partitions.fenced(request)
        if error is ErrorCode.NONE:
            self._partitions.controller_epoch = request["controller_epoch"]
            self._metadata.update(request)
            for topic, _, _ in partition_states(request):
                if self._metadata.topics(topic) is None:
                    self._configs.forget(topic)
        return {"error_code": error}

    async def _auto_create(self, names: Sequence[str]) -> None:
        try:
            topics = [self._topics.internal(name) for name in names]
            timeout_ms = self._config.network.request_timeout_ms
            for result in await self._topics.create(topics, timeout_ms=timeout_ms, validate_only=False):
                if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    log.warning("topic not created on demand", topic=result.name, reason=result.message)
        finally:
            self._creating.difference_update(names)

    def _config_changed(self, topic: str, overrides: Mapping[str, str]) -> None:
        assert self._partitions is not None, "join before serving"
        _warn_of_unknown({topic: overrides})
        try:
            self._partitions.logs.update_config(topic, self._in_effect(topic, overrides))
        except KafkaError as error:
            log.error("topic configuration is not usable, the last one stays", topic=topic, reason=error)

    def _effective_config(self) -> BrokerConfig:
        """What `server.properties` says under what ZooKeeper says; the last one when these do not go together."""
        default, own = (self.broker_overrides(name) for name in (paths.DEFAULT_ENTITY, str(self.broker_id)))
        try:
            return config_dynamic.with_levels(self._config, default, own)
        except ValueError as error:
            log.error("broker configuration is not usable, the last one stays", reason=error)
            return self.config

    def _broker_config_changed(self) -> None:
        assert self._partitions is not None, "join before serving"
        self.config = self._effective_config()
        try:
            self._partitions.logs.update_defaults(LogConfig.from_broker(self.config))
        except KafkaError as error:
            log.error("broker configuration is not usable for every topic", reason=error)
        for callback in self._config_callbacks:
            callback(self.config)

    async def _find_cluster_id(self) -> str:
        znode = await self._zookeeper.get(paths.CLUSTER_ID)
        if znode is None:
            new_id = base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()
            await self._zookeeper.ensure(paths.CLUSTER_ID, paths.encode_cluster_id(new_id))
            znode = await self._zookeeper.get(paths.CLUSTER_ID)
        assert znode is not None, "it was just ensured"
        return paths.decode_cluster_id(znode.data)

    async def _next_broker_id(self) -> int:
        """The version of `/brokers/seqid` after a write is a number that no other broker gets."""
        version = await self._zookeeper.set(paths.BROKER_SEQUENCE_ID, b"")
        return version + self._config.network.reserved_broker_max_id

    async def _register_again(self) -> None:
        assert self._registration is not None, "join makes it"
        if not await self._is_own_cluster() or not await self._registration.renew():
            self._mailbox.post(self._register_again)
            return
        self._registered()
        await self._forget_deleted_topics()
        if self._office is not None:
            self._office.registered()

    async def _is_own_cluster(self) -> bool:
        """Whether ZooKeeper knows this cluster; False, after a pause, when it lost its data or is another's."""
        znode = await self._zookeeper.get(paths.CLUSTER_ID)
        found = None if znode is None else paths.decode_cluster_id(znode.data)
        if found == self.cluster_id:
            return True
        self.watch.foreign(
            f"ZooKeeper holds {'no cluster.id' if found is None else f'cluster.id={found}'}, and this broker's is "
            f"{self.cluster_id}: check zookeeper.connect, or restore ZooKeeper's data; until then this broker "
            "registers nowhere"
        )
        await asyncio.sleep(PAUSE_SECONDS)
        return False

    def _registered(self) -> None:
        assert self._partitions is not None, "join sets them"
        self.watch.registered()
        self._partitions.broker_epoch = self.broker_epoch

    async def _forget_deleted_topics(self) -> None:
        """No controller tells this broker again of what was deleted while it was away, nor of deletions that
        end before it hears of the registration.
        """
        shown = {name: self._metadata.topic_id(name) for name in self._metadata.topic_names()}
        doomed = set(await self._zookeeper.children(paths.DELETE_TOPICS))
        present = set(await self._zookeeper.children(paths.TOPICS))
        for name in shown.keys() - (present - doomed):
            if self._metadata.topic_id(name) == shown[name]:
                self._metadata.forget(name)
                self._configs.forget(name)

    def _make_controller(self) -> Controller:
        def unclean(topic: str) -> bool:
            text = self._configs.of(topic).get("unclean.leader.election.enable")
            return self.config.logs.unclean_leader_election_enable if text is None else text == "true"

        return Controller(delete_topics=self._config.topics.delete_topic_enable, unclean=unclean)

    def _make_peers(self, on_overflow: Callable[[int], None]) -> Peers:
        return Peers(
            self.broker_id,
            self.control,
            self._tasks,
            timeout_ms=self._config.replication.controller_socket_timeout_ms,
            on_overflow=on_overflow,
        )

    async def _shut_down_controlled(self) -> None:
        """Ask the controller, again while it still has partitions to move, as often as configured."""
        for _ in range(1 + self._config.replication.controlled_shutdown_max_retries):
            if not await self._ask_to_shut_down():
                return
            await asyncio.sleep(self._config.replication.controlled_shutdown_retry_backoff_ms / 1000)

    async def _ask_to_shut_down(self) -> bool:
        """Whether the controller wants to be asked again."""
        if self.is_controller:
            return bool(await self.shut_down(self.broker_id, self.broker_epoch))
        endpoint = self._metadata.endpoint(self._metadata.controller_id, self._config.inter_broker_listener)
        if endpoint is None:
            return False
        link = PeerLink(
            endpoint, f"headrace-{self.broker_id}", self._config.replication.controller_socket_timeout_ms
        )
        message = {"broker_id": self.broker_id, "broker_epoch": self.broker_epoch}
        try:
            response = await link.ask(
                k07_controlled_shutdown.API.key, requests.CONTROLLED_SHUTDOWN_VERSION, message
            )
        finally:
            link.close()
        return bool(response["error_code"] or response["remaining_partitions"])

    async def _work_failed(self, error: Exception) -> None:
        if not isinstance(error, ZooKeeperClosedError):
            log.failure("cluster work failed", error)


def _warn_of_unknown(topics: Mapping[str, Mapping[str, str]]) -> None:
    """One line, however many topics have configurations stored that have no effect here."""
    unknown = {topic: overrides.keys() - known_overrides(overrides) for topic, overrides in topics.items()}
    concerned = [topic for topic, names in unknown.items() if names]
    if concerned:
        keys = sorted(set().union(*unknown.values()))
        log.warning(
            "topic configuration without effect",
            keys=",".join(keys),
            topics=len(concerned),
            first=concerned[0],
        )
