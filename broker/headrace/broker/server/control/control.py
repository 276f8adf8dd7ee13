"""What the controller and this broker have to do with each other, be the controller this broker or another one.

Invariants: requests of the controller are performed in the order in which they came; while ZooKeeper is away the broker
goes on with what the controller said last. `server.replicas.hosted` and `server.metadata` obey, `server.control.controller` is
the office that this broker may hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

from headrace.broker.clock import Clock
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.errors import ErrorCode, NotControllerError, StaleControllerEpochError
from headrace.broker.replication import events, requests
from headrace.broker.replication.control_requests import (
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
    control_request,
)
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.versions import versions_of
from headrace.broker.server.control.controller import NO_CONTROLLER, ControllerOffice
from headrace.broker.server.mailbox import Mailbox
from headrace.broker.server.membership.member import Membership
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.peers.requests import Connect, PeerLink, Peers
from headrace.broker.server.replicas.hosted import Partitions
from headrace.broker.server.settings.configurations import Configurations
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks
from headrace.broker.wire.api import (
    k07_controlled_shutdown,
)
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.znodes import ZooKeeperClosedError

logger = get_logger(__name__)


class Control:
    """The way of the controller's word, and of this broker's to the controller."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        zookeeper: ZooKeeperClient,
        mailbox: Mailbox,
        tasks: Tasks,
        *,
        membership: Membership,
        configurations: Configurations,
        metadata: MetadataCache,
        connect: Connect,
    ) -> None:
        self._config = config
        self._connect = connect
        self._clock = clock
        self._zookeeper = zookeeper
        self._mailbox = mailbox
        self._tasks = tasks
        self._membership = membership
        self._configurations = configurations
        self._metadata = metadata
        self._turn = asyncio.Lock()
        self._versions = versions_of(config.replication.inter_broker_protocol_version)
        self._partitions: Partitions | None = None
        self._office: ControllerOffice | None = None

    def obey(self, partitions: Partitions) -> None:
        """Perform what is asked for, on these partitions, from now on."""
        self._partitions = partitions

    def run_for_office(self) -> None:
        """Run for controller, this broker being registered."""
        replication = self._config.replication
        self._office = ControllerOffice(
            self._zookeeper,
            self._clock,
            self._tasks,
            broker_id=self._membership.broker_id,
            listener=self._config.control_plane_listener,
            versions=self._versions,
            make=self._make_controller,
            peers=self._make_peers,
            learn=self._configurations.learn,
            balance_interval_s=(
                replication.leader_imbalance_check_interval_seconds
                if replication.auto_leader_rebalance_enable
                else None
            ),
        )
        self._configurations.on_unclean_allowed(self._office.unclean_allowed)
        self._office.start()

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._office is not None and self._office.is_active

    def topics_written(self, topics: Collection[str]) -> None:
        """This broker wrote topics: the office, if it is here, decides nothing before it read them."""
        if self._office is not None:
            self._office.topics_written(topics)

    def topics_doomed(self) -> None:
        """This broker wished topics gone: the office, if it is here, decides nothing before it knows."""
        if self._office is not None:
            self._office.topics_doomed()

    async def perform(self, request: LeaderAndIsr | StopReplica | UpdateMetadata) -> dict[str, Any]:
        """Perform a request of the controller's in its turn; answers the response.

        What fails for a reason that nobody foresaw is answered too: the controller's next word must get through.
        """
        try:
            async with self._turn:
                return await self._performed(request)
        except ZooKeeperClosedError:
            return request.refused(ErrorCode.BROKER_NOT_AVAILABLE)
        except Exception as error:
            logger.failure(
                "a request of the controller failed",
                error,
                broker=self._membership.broker_id,
                request=type(request).__name__,
            )
            return request.refused(ErrorCode.UNKNOWN_SERVER_ERROR)

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[PartitionKey]:
        """ControlledShutdown: what the broker still leads.

        Raises StaleControllerEpochError, BrokerNotAvailableError and StaleBrokerEpochError.
        """
        if self._office is None:
            raise StaleControllerEpochError(NO_CONTROLLER)
        return await self._office.shut_down(broker_id, broker_epoch)

    async def answer(self, event: events.Question) -> events.Answer:
        """What the controller answers, this broker being it. Raises NotControllerError."""
        if self._office is None:
            raise NotControllerError(NO_CONTROLLER)
        return await self._office.answer(event)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """(first id, count) of a block of producer ids, this broker being controller. Raises KafkaErrors."""
        if self._office is None:
            raise NotControllerError(NO_CONTROLLER)
        return await self._office.allocate_producer_ids(broker_id, broker_epoch)

    def controller_figures(self) -> tuple[int, int]:
        """What the office tells."""
        return (0, 0) if self._office is None else self._office.figures()

    def elections(self) -> tuple[int, int]:
        """How many leaders this broker elected as controller, and how many of them that were not in sync."""
        if self._office is None:
            return 0, 0
        changes = self._office.changes
        return changes.leader_elections, changes.unclean_leader_elections

    def log_directory_failed(self) -> None:
        """Have the controller ask which replicas of this broker are out of reach (KIP-112)."""
        event = paths.encode_log_directory_event(self._membership.broker_id)
        self._mailbox.post(
            lambda: self._zookeeper.create(paths.LOG_DIRECTORY_EVENT_PREFIX, event, sequence=True)
        )

    def session_started(self) -> None:
        """An office held in the last session is gone."""
        if self._office is not None:
            self._office.session_started()

    async def registered(self) -> None:
        """This broker is registered in a session, for the first time or again."""
        assert self._partitions is not None, "obey before registering"
        self._partitions.broker_epoch = self._membership.broker_epoch
        await self._compare_topics()
        if self._office is not None:
            self._office.registered()

    async def take_leave(self) -> None:
        """Have others lead what they can: ask the controller, again while it still has partitions to move that another live
        broker holds, as often as configured.
        """
        if not self._config.replication.controlled_shutdown_enable or self._partitions is None:
            return
        for _ in range(1 + self._config.replication.controlled_shutdown_max_retries):
            if not await self._ask_to_shut_down():
                return
            await asyncio.sleep(self._config.replication.controlled_shutdown_retry_backoff_ms / 1000)

    async def _performed(self, request: LeaderAndIsr | StopReplica | UpdateMetadata) -> dict[str, Any]:
        assert self._partitions is not None, "obey before serving"
        if isinstance(request, LeaderAndIsr):
            await self._configurations.learn(self._partitions.newness(request))
            return await self._partitions.leader_and_isr(request)
        if isinstance(request, StopReplica):
            return await self._partitions.stop_replica(request)
        return await self._update_metadata(self._partitions, request)

    async def _update_metadata(self, partitions: Partitions, request: UpdateMetadata) -> dict[str, Any]:
        error = partitions.fenced(request)
        if error is ErrorCode.NONE:
            partitions.controller_epoch = request.controller_epoch
            self._metadata.update(request)
            for told in request.partitions:
                if self._metadata.topics(told.topic) is None:
                    self._configurations.forget(told.topic)
            await partitions.leave_what_moved_away(request.partitions)
        return {"error_code": error}

    async def _compare_topics(self) -> None:
        """Forget topics that are gone, and expect to be told of all others.

        No controller tells this broker again of what was deleted while it was away, nor of deletions that
        end before it hears of the registration. A new one tells of its topics one after another.
        """
        shown = {name: self._metadata.topic_id(name) for name in self._metadata.topic_names()}
        doomed = set(await self._zookeeper.children(paths.DELETE_TOPICS))
        present = set(await self._zookeeper.children(paths.TOPICS))
        self._metadata.expect(present - doomed)
        for name in shown.keys() - (present - doomed):
            if self._metadata.topic_id(name) == shown[name]:
                self._metadata.forget(name)
                self._configurations.forget(name)

    def _make_controller(self) -> Controller:
        return Controller(
            delete_topics=self._config.topics.delete_topic_enable,
            unclean=self._configurations.is_unclean,
            notes_recovery=self._versions.tells_recovery,
            imbalance_percentage=self._config.replication.leader_imbalance_per_broker_percentage,
        )

    def _make_peers(self, on_overflow: Callable[[int], None]) -> Peers:
        return Peers(
            self._membership.broker_id,
            self._perform_own,
            self._tasks,
            timeout_ms=self._config.replication.controller_socket_timeout_ms,
            on_overflow=on_overflow,
            connect=self._connect,
        )

    async def _perform_own(self, request: requests.SharedRequest, broker_epoch: int) -> Message:
        """What this broker, being controller, asks of itself."""
        return await self.perform(control_request(request.key, request.message(broker_epoch)))

    async def _ask_to_shut_down(self) -> bool:
        """Whether the controller wants to be asked again."""
        broker_id, broker_epoch = self._membership.broker_id, self._membership.broker_epoch
        if self.is_controller:
            return self._others_hold_any(await self.shut_down(broker_id, broker_epoch))
        endpoint = self._metadata.endpoint(self._metadata.controller_id, self._config.inter_broker_listener)
        if endpoint is None:
            return False
        link = PeerLink(
            endpoint,
            f"headrace-{broker_id}",
            self._config.replication.controller_socket_timeout_ms,
            self._connect,
        )
        message = {"broker_id": broker_id, "broker_epoch": broker_epoch}
        try:
            response = await link.ask(
                k07_controlled_shutdown.API, requests.CONTROLLED_SHUTDOWN_VERSION, message
            )
        finally:
            link.close()
        remaining = [(p["topic_name"], p["partition_index"]) for p in response["remaining_partitions"]]
        return bool(response["error_code"]) or self._others_hold_any(remaining)

    def _others_hold_any(self, remaining: Iterable[PartitionKey]) -> bool:
        """Whether a live broker other than this one has a replica of any of them: only then is it worth asking again."""
        others = self._metadata.brokers.keys() - {self._membership.broker_id}
        known = (self._metadata.partition(*key) for key in remaining)
        return any(others.intersection(partition.replicas) for partition in known if partition is not None)
