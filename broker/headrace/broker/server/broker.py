"""Wiring: builds one broker from its configuration, starts it, takes it down in order.

Start: bind → metrics → ZooKeeper → open (and recover) the logs → register → serve. Stop: no new connections → embedded parts →
controlled shutdown and end of the session → answer what waits → close connections → flush and close the logs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from headrace.broker.client.security import ClientSecurity
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import StorageError
from headrace.broker.handlers import k03_metadata, k27_write_txn_markers, table
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.handlers.services import Services
from headrace.broker.log.results import RecoveryReport
from headrace.broker.log.startup import open_logs
from headrace.broker.log.store import LogStore
from headrace.broker.page_server import PageServer
from headrace.broker.replication.partition import Partition
from headrace.broker.replication.versions import versions_of
from headrace.broker.server.access.log_ins import LogIns
from headrace.broker.server.cluster import Cluster
from headrace.broker.server.coordinators.groups import GroupCoordinator
from headrace.broker.server.coordinators.transactions import TransactionCoordinator
from headrace.broker.server.embedding import (
    BrokerHost,
    embedded_parts,
    mirrored_names,
    run_embedded,
)
from headrace.broker.server.later import Later
from headrace.broker.server.membership.producer_ids import ProducerIds
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.peers.controller_channel import ControllerChannel
from headrace.broker.server.peers.inter_broker import security_between_brokers
from headrace.broker.server.replicas.fetchers import ReplicaFetchers
from headrace.broker.server.replicas.followed import FetchContext
from headrace.broker.server.replicas.full_disks import FullDisks
from headrace.broker.server.replicas.host import ReplicaHost
from headrace.broker.server.replicas.hosted import Partitions
from headrace.broker.server.replicas.isr_changes import IsrChanges
from headrace.broker.server.replicas.moves import ReplicaMoves
from headrace.broker.server.replicas.throttle import FOLLOWER, LEADER, ReplicaThrottle
from headrace.broker.server.settings.addresses import (
    data_directories,
    endpoints,
    stored_broker_id,
    with_ports,
)
from headrace.broker.server.settings.client_quotas import ClientQuotas, client_usage
from headrace.broker.server.settings.connection_quotas import ConnectionQuotas
from headrace.broker.server.sockets.listener import Acceptor
from headrace.broker.server.sockets.tls_listeners import TlsListeners
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.server.status.metrics_page import MetricsPage
from headrace.broker.server.status.process_metrics import ProcessMetrics
from headrace.broker.server.status.readiness import Phase, Readiness
from headrace.broker.server.status.start_report import StartReport
from headrace.broker.server.surroundings import Surroundings
from headrace.broker.server.upkeep.cleaner import Cleaner
from headrace.broker.server.upkeep.housekeeping import Housekeeping
from headrace.broker.server.upkeep.syncing import Syncs
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.parking import Waiting

logger = get_logger(__name__)
CLOSING_THREADS = 16
TAKING_SECONDS_MAX = 60


class Broker:
    """One broker's parts; `start` and `stop` are each called once.

    `give_up()` is called when it cannot go on, with the reason in `failure`.
    """

    def __init__(self, config: BrokerConfig, give_up: Callable[[], None], surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._loop = asyncio.get_running_loop()
        self.failure: StorageError | None = None
        self.give_up = give_up
        self.partitions: Partitions | None = None
        self.tasks = Tasks()
        self.later = Later(self.tasks)
        self.embedded = Tasks()
        self.clock = surroundings.clock
        self.files = surroundings.files(self._disk_failed_in_thread)
        self.metrics = BrokerMetrics()
        self.refused_writes = self.metrics.refused_writes = RefusedWrites()
        self.logs: LogStore | None = None
        self.groups: GroupCoordinator | None = None
        self.transactions: TransactionCoordinator | None = None
        self.acceptor: Acceptor | None = None
        self.is_serving = False
        self.sockets = [
            (listener, surroundings.bind(listener, config.network)) for listener in config.listeners
        ]
        self.config = with_ports(config, [sock for _, sock in self.sockets])
        self._connect = surroundings.connector(self._security_between_brokers, self.metrics.count_refusal)
        self.metadata = MetadataCache()
        self.client_usage = client_usage(self.config.quotas)
        is_mirrored = mirrored_names(config.properties)
        self.cluster = Cluster(
            self.config,
            self.clock,
            self.metadata,
            self.tasks,
            is_mirrored,
            make_kazoo=surroundings.kazoo,
            connect=self._connect,
        )
        self.log_ins = LogIns(self.config, self.cluster.scram_users.known, self.cluster.tokens.known)
        self.metrics.log_ins = self.log_ins.figures
        self.cluster.configurations.of_clients.on_change(ClientQuotas(self.client_usage).changed)
        self.connection_quotas = ConnectionQuotas(self.config, self.tasks)
        self.cluster.configurations.of_clients.on_change(self.connection_quotas.changed)
        self.metrics.controller_figures = self.cluster.control.controller_figures
        self.metrics.decisions = self.cluster.decisions
        if self.cluster.access_lists is not None:
            self.metrics.access_lists = self.cluster.access_lists.counts
        self.metrics.elections = self.cluster.control.elections
        self.metrics.controller = lambda: (self.metadata.controller_id, self.cluster.control.is_controller)
        self.metrics.groups = lambda: 0 if self.groups is None else self.groups.group_count
        self.metrics.transactions = lambda: {} if self.transactions is None else self.transactions.counts()
        self.metrics.zookeeper = self.cluster.membership.watch
        self.readiness = Readiness(self.metrics.opening, self.cluster.membership.watch)
        self.page_server = PageServer(
            {
                "/metrics": MetricsPage(self.metrics.registry, ProcessMetrics(self._directories)).answer,
                "/live": self.readiness.live,
                "/ready": self.readiness.ready,
            }
        )
        self.waiting = Waiting(self._loop)
        self.syncs = Syncs(self.tasks, self.waiting.wake, self.metrics.flush_times)
        self.metadata.on_change(lambda: self.waiting.wake(*k03_metadata.UNTOLD))
        self.metrics.parked = lambda: self.waiting.parked_count

    def _security_between_brokers(self) -> ClientSecurity:
        return security_between_brokers(self.cluster.configurations.in_effect)

    def _directories(self) -> list[str]:
        return [] if self.logs is None else list(self.logs.paths())

    async def start(self) -> None:
        """Returns once clients are served and the cluster knows this broker."""
        directories = data_directories(self.config)
        self.tasks.start("loop delay", self.metrics.loop_delay.run())
        if self.config.network.headrace_metrics_listener:
            await self.page_server.start(
                "headrace.metrics.listener", self.config.network.headrace_metrics_listener
            )
        await self.cluster.connect(stored_broker_id(self.files, directories))
        configurations = self.cluster.configurations
        tls = TlsListeners(configurations.in_effect)
        configurations.check_certificates = tls.check
        configurations.on_change(tls.use)
        self.metrics.certificate_expirations = tls.expirations
        self.readiness.phase = Phase.RECOVERING
        self.logs = await self._open_logs(directories)
        self.readiness.phase = Phase.REGISTERING
        partitions = self.partitions = self._make_partitions(self.logs)
        partitions.on_change(self._partition_changed)
        self._follow(partitions)
        FullDisks(
            self.files, self.refused_writes, partitions, self.cluster.control.log_directory_failed
        ).start(self.tasks)
        self.metrics.led = partitions.led
        self.metrics.replicas = partitions.all
        self.metrics.directories = self.logs.paths
        self.metrics.offline_directories = partial(len, self.logs.offline)
        self.metrics.offline_replicas = partitions.offline_count
        services = self._make_services(partitions)
        self.cluster.configurations.on_change(services.use_config)
        self._expire_producers(self.cluster.configurations.in_effect)
        self.cluster.configurations.on_change(self._expire_producers)
        acceptor = self.acceptor = self._make_acceptor(services, tls)
        self.log_ins.start(self.tasks)
        acceptor.start()
        await self.cluster.join(partitions, endpoints(self.config))
        housekeeping = Housekeeping(
            self.config.logs,
            self.logs,
            self.clock,
            acceptor.sweep,
            self.tasks,
            self.metrics.flush_times,
            self.waiting.wake_both,
        )
        self.tasks.every("housekeeping", housekeeping.INTERVAL_MS, housekeeping.run)
        self.tasks.every(
            "high watermarks",
            self.config.replication.replica_high_watermark_checkpoint_interval_ms,
            housekeeping.checkpoint_watermarks,
        )
        self._start_cleaner(self.logs)
        await self._known_to_cluster(partitions)
        embedding = BrokerHost(
            self.config, self.clock, self.cluster, self.metadata, partitions, self.waiting, self.metrics
        )
        for name, start in embedded_parts():
            self.embedded.start(name, run_embedded(embedding, name, start))
        self.readiness.phase = Phase.SERVING
        self.is_serving = self.metrics.is_serving = True

    def _make_acceptor(self, services: Services, tls: TlsListeners) -> Acceptor:
        quotas = self.connection_quotas
        quotas.use_config(self.cluster.configurations.in_effect)
        acceptor = Acceptor(
            self.sockets,
            services,
            quotas.connections,
            self.metrics,
            self._loop,
            self._surroundings.now,
            tls,
            self.log_ins,
        )
        quotas.on_change = acceptor.limits_changed
        self.cluster.configurations.on_change(quotas.use_config)
        return acceptor

    def _follow(self, partitions: Partitions) -> None:
        listener = self.config.inter_broker_listener
        context = FetchContext(
            broker_id=partitions.broker_id,
            config=self.config.replication,
            partitions=partitions,
            clock=self.clock,
            connect=self._connect,
            endpoint=lambda broker_id: self.metadata.endpoint(broker_id, listener),
            replicated=self.metrics.replicated_in,
            refused_writes=self.refused_writes,
            throttle=self._make_throttle(FOLLOWER),
            sync=self.syncs.until_none_is_due,
            versions=versions_of(self.config.replication.inter_broker_protocol_version),
            is_leaving=lambda: self.readiness.phase is Phase.DRAINING,
        )
        fetchers = ReplicaFetchers(context, self.tasks)
        partitions.on_change(fetchers.changed)
        self.metrics.followed = fetchers.figures

    def _make_throttle(self, direction: str) -> ReplicaThrottle:
        configurations = self.cluster.configurations
        throttle = ReplicaThrottle(
            direction,
            self.cluster.membership.broker_id,
            configurations.throttled,
            self.clock,
            configurations.in_effect,
        )
        configurations.on_change(throttle.use_config)
        return throttle

    def _expire_producers(self, config: BrokerConfig) -> None:
        assert self.logs is not None, "they are open"
        self.logs.producer_id_expiration_ms = config.transactions.producer_id_expiration_ms

    def _start_cleaner(self, logs: LogStore) -> None:
        if self.config.logs.log_cleaner_enable:
            cleaner = Cleaner(self.cluster.configurations.in_effect.logs, logs, self.clock)
            self.cluster.configurations.on_change(lambda config: cleaner.use_config(config.logs))
            self.metrics.cleaner = lambda: (cleaner.figures, self.clock.monotonic_ms())
            self.tasks.start("cleaner", cleaner.run())

    async def stop(self) -> None:
        """Take down what `start` built, as far as it came."""
        self.readiness.phase = Phase.DRAINING
        if self.acceptor is not None:
            self.acceptor.stop()
        await self.embedded.stop()
        await self.cluster.leave()
        self.waiting.release()
        if self.transactions is not None:
            self.transactions.close()
        if self.groups is not None:
            self.groups.close()
        if self.acceptor is not None:
            self.acceptor.close_all()
        await self.tasks.stop()
        if self.logs is not None:
            with self._surroundings.threads(CLOSING_THREADS) as pool:
                self.logs.close(pool.map)
        await self.page_server.stop()

    async def _open_logs(self, directories: Sequence[str]) -> LogStore:
        progress = self.metrics.opening

        def work() -> tuple[LogStore, list[RecoveryReport]]:
            with self._surroundings.threads(self.config.logs.num_recovery_threads_per_data_dir) as pool:
                return open_logs(
                    self.files,
                    directories,
                    LogConfig.from_broker(self.cluster.configurations.in_effect),
                    broker_id=self.cluster.membership.broker_id,
                    cluster_id=self.cluster.membership.cluster_id,
                    overrides=self.cluster.configurations.of_topic,
                    now_ms=self.clock.now_ms(),
                    map_folders=pool.map,
                    make_lock=threading.Lock,
                    progress=progress,
                )

        report = StartReport(progress, self.clock)
        telling = self.tasks.start("start report", report.run())
        try:
            logs, reports = await asyncio.to_thread(work)
        finally:
            telling.cancel()
        report.over()
        for recovery in reports:
            _log_recovery(recovery)
        for path, reason in logs.offline.items():
            logger.error("data directory cannot be used", path=path, reason=reason)
        return logs

    def _disk_failed_in_thread(self, path: str, error: OSError) -> None:
        # The loop is closed when the last files are.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._disk_failed, path, error)

    def _disk_failed(self, path: str, error: OSError) -> None:
        """Go on without a data directory (KIP-112), or give up after the last one."""
        if self.logs is None or self.partitions is None:
            return
        lost = self.logs.failed(path, error)
        if lost is None:
            return
        logger.error("data directory failed", path=path, reason=error, partitions=len(lost))
        self.partitions.take_offline(lost)
        if self.logs.has_failed:
            reasons = "; ".join(f"{path}: {reason}" for path, reason in self.logs.offline.items())
            self.failure = StorageError(f"All data directories have failed ({reasons}). Repair the disks.")
            self.give_up()
        else:
            self.cluster.control.log_directory_failed()

    def _make_partitions(self, logs: LogStore) -> Partitions:
        config, membership = self.config.replication, self.cluster.membership
        channel = ControllerChannel(
            self.metadata,
            listener=self.config.control_plane_listener,
            client_id=f"headrace-{membership.broker_id}",
            timeout_ms=config.controller_socket_timeout_ms,
            connect=self._connect,
        )
        changes = IsrChanges(
            membership.broker_id,
            self.cluster.control,
            channel,
            self.tasks,
            broker_epoch=lambda: membership.broker_epoch,
            timeout_ms=config.controller_socket_timeout_ms,
            secure=self.syncs.all_of,
        )
        host = ReplicaHost(
            membership.broker_id,
            self.clock,
            self.metadata,
            replica_lag_ms_max=config.replica_lag_time_max_ms,
            request_sync=self.syncs.request,
            secure=self.syncs.request_all,
            propose=changes.propose,
            wake=self.waiting.wake,
        )
        partitions = Partitions(host, logs, self.metadata, self.clock)
        self.metrics.isr_counts = changes.counts
        self.metrics.leaderships_refused = lambda: partitions.leaderships_refused
        self.tasks.start("ISR changes", changes.run())
        # A follower may lag for up to one and a half times that before it is noticed, as in Kafka.
        self.tasks.every("replica lag", max(config.replica_lag_time_max_ms // 2, 1), partitions.check_lag)
        return partitions

    def _make_services(self, partitions: Partitions) -> Services:
        self.groups = GroupCoordinator(
            self.config.groups,
            clock=self.clock,
            partitions=partitions,
            metadata=self.metadata,
            waiting=self.waiting,
            scheduler=self._loop,
            refused_writes=self.refused_writes,
        )
        producer_ids = ProducerIds(self.cluster.producer_id_blocks.allocate, self._run)
        self.transactions = TransactionCoordinator(
            self.config.transactions,
            clock=self.clock,
            partitions=partitions,
            metadata=self.metadata,
            waiting=self.waiting,
            scheduler=self._loop,
            refused_writes=self.refused_writes,
            next_producer_id=producer_ids.next_id,
            broker_id=self.cluster.membership.broker_id,
            listener=self.config.inter_broker_listener,
            timeout_ms=self.config.network.request_timeout_ms,
            connect=self._connect,
            tasks=self.tasks,
        )
        access_lists = self.cluster.access_lists
        services = Services(
            broker_id=self.cluster.membership.broker_id,
            api_versions=table.VERSIONS,
            config=self.cluster.configurations.in_effect,
            clock=self.clock,
            partitions=partitions,
            metadata=self.metadata,
            topics=self.cluster.topics,
            configurations=self.cluster.configurations,
            control=self.cluster.control,
            consumer_offsets=self.cluster.consumer_offsets,
            waiting=self.waiting,
            metrics=self.metrics,
            leader_throttle=self._make_throttle(LEADER),
            groups=self.groups,
            transactions=self.transactions,
            verifier=self.transactions.verifier,
            producer_ids=producer_ids,
            moves=self._make_moves(partitions),
            credentials=self.cluster.scram_users,
            tokens=self.cluster.tokens,
            refused_writes=self.refused_writes,
            later=self.later,
            now=self._surroundings.now,
            client_usage=self.client_usage,
            authorizer=None if access_lists is None else access_lists.authorizer,
            access_lists=access_lists,
        )
        self.transactions.start(partial(k27_write_txn_markers.write, services))
        return services

    def _make_moves(self, partitions: Partitions) -> ReplicaMoves:
        threads = self.config.replication.num_replica_alter_log_dirs_threads or len(self.config.log_dirs)
        moves = ReplicaMoves(partitions.logs, partitions, self.clock, self.tasks, threads=threads)
        moves.use_config(self.cluster.configurations.in_effect.replication)
        self.cluster.configurations.on_change(lambda config: moves.use_config(config.replication))
        return moves

    def _run(self, work: Coroutine[Any, Any, Any]) -> Deferred[Any]:
        """The outcome of `work` in a task of the broker."""
        return self.later("request", work)

    def _partition_changed(self, partition: Partition) -> None:
        self.waiting.wake_both(partition.topic, partition.partition)

    async def _known_to_cluster(self, partitions: Partitions) -> None:
        """Wait until the controller told this broker of itself, and it has what clients are told that it leads."""
        told = asyncio.Event()
        self.metadata.on_change(told.set)
        partitions.on_change(lambda _: told.set())
        while self.cluster.membership.broker_id not in self.metadata.brokers:
            await _next(told)
        try:
            async with asyncio.timeout(TAKING_SECONDS_MAX):
                while not self._leads_what_it_is_told(partitions):
                    await _next(told)
        except TimeoutError:
            logger.warning("serving before the controller has sent all that this broker leads")

    def _leads_what_it_is_told(self, partitions: Partitions) -> bool:
        return all(
            partitions.is_settled(topic, number)
            for topic in self.metadata.topic_names()
            for number, partition in (self.metadata.topics(topic) or {}).items()
            if partition.leader == self.cluster.membership.broker_id
        )


async def _next(event: asyncio.Event) -> None:
    """Wait until it happens anew."""
    event.clear()
    await event.wait()


def _log_recovery(report: RecoveryReport) -> None:
    for finding in report.findings:
        logger.warning(
            "recovery",
            kind=finding.kind,
            path=finding.path,
            position=finding.position,
            size=finding.size,
            reason=finding.reason,
        )
