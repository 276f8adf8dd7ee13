"""What the broker counts, as families of Prometheus' for its page.

Counting is plain integer addition on the loop; the families are put together when the page is asked for, from the same
integers, so that metrics cost the hot path next to nothing. Those of many partitions are made sample by sample, as the
page takes them, between which other work has the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.samples import Sample

from headrace.broker.auth.decisions import Decisions
from headrace.broker.build_info import BuildInfo
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.handlers.table import HANDLERS
from headrace.broker.log.progress import OpeningProgress
from headrace.broker.server.replicas.isr_changes import IsrCounts
from headrace.broker.server.status import access_metrics
from headrace.broker.server.status.loop_delay import LoopDelay
from headrace.broker.server.upkeep.syncing import FlushTimes

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog
    from headrace.broker.replication.partition import Partition
    from headrace.broker.server.access.log_ins import LogInFigures
    from headrace.broker.server.membership.zookeeper_watch import ZooKeeperWatch
    from headrace.broker.server.replicas.fetchers import SourceFigures
    from headrace.broker.server.upkeep.cleaner import CleanerFigures

KEY_COUNT = 128
SIZE_BUCKETS = 33
PARTITION_GAUGES: tuple[tuple[str, str, Callable[[PartitionLog], int]], ...] = (
    ("headrace_log_end_offset", "Log end offset of led partitions.", lambda log: log.log_end_offset),
    ("headrace_log_start_offset", "Log start offset of led partitions.", lambda log: log.log_start_offset),
    ("headrace_high_watermark", "High watermark of led partitions.", lambda log: log.high_watermark),
    (
        "headrace_last_stable_offset",
        "Last stable offset of led partitions.",
        lambda log: log.last_stable_offset,
    ),
    ("headrace_log_size_bytes", "Bytes of led partitions' logs.", lambda log: log.size),
)


class BrokerMetrics:
    """Counters of one broker; `connections` and `parked` are asked when the page is made."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_accepted = 0
        self.handshakes = self.failed_handshakes = self.refusals = 0
        # By listener with TLS, in seconds since 1970.
        self.certificate_expirations: Callable[[], Mapping[str, float]] = dict
        self.requests = [0] * KEY_COUNT
        self.request_bytes = [0] * KEY_COUNT
        self.request_sizes = [0] * SIZE_BUCKETS
        self.produced_batches: dict[str, int] = {}
        self.produced_bytes: dict[str, int] = {}
        self.fetched_bytes: dict[str, int] = {}
        self.connections: Callable[[], int] = lambda: 0
        self.parked: Callable[[], int] = lambda: 0
        self.offline_directories: Callable[[], int] = lambda: 0
        self.offline_replicas: Callable[[], int] = lambda: 0
        # What the cleaner tells, and the monotonic time; None where there is no cleaner.
        self.cleaner: Callable[[], tuple[CleanerFigures, int] | None] = lambda: None
        self.refused_writes = RefusedWrites()
        # By kind of quota: how often a client was made to wait, and for how long. And who waits now.
        self.throttles: dict[str, int] = {}
        self.throttle_ms: dict[str, int] = {}
        self.muted_connections = 0
        # The same of new connections, by listener and by what held them up: (how often, milliseconds).
        self.connection_throttles: dict[tuple[str, str], tuple[int, int]] = {}
        self.decisions = Decisions({})
        # How many access control lists there are, and how many of them cannot be read.
        self.access_lists: Callable[[], tuple[int, int]] = lambda: (0, 0)
        # Seconds by API key: of handling on the loop, and of waiting until a reply could be given.
        self.handling_seconds = [0.0] * KEY_COUNT
        self.waiting_seconds = [0.0] * KEY_COUNT
        self.flush_times = FlushTimes()
        self.loop_delay = LoopDelay()
        # By listener, of those where clients log in.
        self.log_ins: Mapping[str, LogInFigures] = {}
        self.is_serving = False
        self.replicas: Callable[[], Iterable[Partition]] = lambda: ()
        self.groups: Callable[[], int] = lambda: 0
        self.transactions: Callable[[], Mapping[str, int]] = dict
        # The id of the controller, -1 while unknown, and whether it is this broker.
        self.controller: Callable[[], tuple[int, bool]] = lambda: (-1, False)
        # What this broker knows as controller, and how many leaders it elected, (all, unclean).
        self.controller_figures: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.elections: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.opening = OpeningProgress()
        self.zookeeper: ZooKeeperWatch | None = None
        # The data directories that are in use.
        self.directories: Callable[[], Iterable[str]] = lambda: ()
        # How often each (API key, error code) was answered.
        self.errors: dict[tuple[int, int], int] = {}
        self.isr_counts = IsrCounts()
        self.leaderships_refused: Callable[[], int] = lambda: 0
        self.led: Callable[[], Iterable[Partition]] = lambda: ()
        # What is followed, by leader, and how many bytes followers here were sent.
        self.followed: Callable[[], Iterable[SourceFigures]] = lambda: ()
        self.replicated_bytes_in = self.replicated_bytes_out = 0
        self.registry.register(self)

    def request(self, key: int, size: int) -> None:
        self.requests[key] += 1
        self.request_bytes[key] += size
        self.request_sizes[size.bit_length()] += 1

    def produced(self, topic: str, batch_count: int, size: int) -> None:
        self.produced_batches[topic] = self.produced_batches.get(topic, 0) + batch_count
        self.produced_bytes[topic] = self.produced_bytes.get(topic, 0) + size

    def fetched(self, topic: str, size: int) -> None:
        self.fetched_bytes[topic] = self.fetched_bytes.get(topic, 0) + size

    def replicated_in(self, size: int) -> None:
        self.replicated_bytes_in += size

    def replicated_out(self, size: int) -> None:
        self.replicated_bytes_out += size

    def handshake_failed(self) -> None:
        self.failed_handshakes += 1

    def count_refusal(self) -> None:
        """Another broker did not let this one in."""
        self.refusals += 1

    def failed(self, key: int, error_code: int) -> None:
        known = (key, error_code)
        self.errors[known] = self.errors.get(known, 0) + 1

    def throttled(self, quota: str, throttle_ms: int) -> None:
        self.throttles[quota] = self.throttles.get(quota, 0) + 1
        self.throttle_ms[quota] = self.throttle_ms.get(quota, 0) + throttle_ms

    def connection_throttled(self, listener: str, by: str, throttle_ms: int) -> None:
        """A connection came sooner than the limits of its listener or of its address allow."""
        count, together_ms = self.connection_throttles.get((listener, by), (0, 0))
        self.connection_throttles[listener, by] = count + 1, together_ms + throttle_ms

    def collect(self) -> Iterator[Metric]:
        """The page's families."""
        yield CounterMetricFamily("headrace_received_bytes", "Bytes read from clients.", self.bytes_in)
        yield CounterMetricFamily("headrace_sent_bytes", "Bytes sent to clients.", self.bytes_out)
        yield CounterMetricFamily(
            "headrace_connections_accepted", "Connections accepted.", self.connections_accepted
        )
        yield CounterMetricFamily(
            "headrace_tls_handshakes", "TLS handshakes that were done.", self.handshakes
        )
        yield CounterMetricFamily(
            "headrace_failed_tls_handshakes", "TLS handshakes that failed.", self.failed_handshakes
        )
        yield CounterMetricFamily(
            "headrace_refusals_by_brokers",
            "Times that another broker did not let this one in.",
            self.refusals,
        )
        yield self._certificates()
        yield GaugeMetricFamily("headrace_connections", "Open client connections.", self.connections())
        yield from self._log_in_families()
        yield GaugeMetricFamily("headrace_parked_requests", "Requests that wait.", self.parked())
        yield self._by_api("headrace_requests", "Requests by API.", self.requests)
        yield self._by_api("headrace_request_bytes", "Request bytes by API.", self.request_bytes)
        yield self._by_api(
            "headrace_request_handling_seconds", "Time on the loop by API.", self.handling_seconds
        )
        yield self._by_api(
            "headrace_request_waiting_seconds",
            "Time for which replies waited for data, replicas, members or requests written together, by API.",
            self.waiting_seconds,
        )
        yield self._errors()
        yield self._size_histogram()
        self._forget_topics_that_are_gone()
        yield _by_topic("headrace_produced_batches", "Batches appended.", self.produced_batches)
        yield _by_topic("headrace_produced_bytes", "Bytes appended.", self.produced_bytes)
        yield _by_topic("headrace_fetched_bytes", "Bytes fetched.", self.fetched_bytes)
        yield from self._throttles()
        yield from self._connection_throttles()
        yield from access_metrics.families(self.decisions, *self.access_lists())
        yield from self._broker()
        yield from self._replication()
        yield from self._partitions()
        yield from self._following()
        yield from self._cleaner()
        yield from self._refused_writes()
        yield from self._zookeeper()
        yield from self._opening()
        yield GaugeMetricFamily(
            "headrace_offline_log_directories",
            "Directories of log.dirs that failed.",
            self.offline_directories(),
        )

    def _forget_topics_that_are_gone(self) -> None:
        here = {partition.topic for partition in self.replicas()}
        for values in (self.produced_batches, self.produced_bytes, self.fetched_bytes):
            for topic in values.keys() - here:
                del values[topic]

    def _certificates(self) -> Metric:
        family = GaugeMetricFamily(
            "headrace_certificate_expires_seconds",
            "When a listener's certificate expires, in seconds since 1970.",
            labels=["listener"],
        )
        for listener, expires_s in self.certificate_expirations().items():
            family.add_metric([listener], expires_s)
        return family

    def _log_in_families(self) -> Iterator[Metric]:
        """Kafka's successful- and failed-(re)authentication-total, and expired-connections-killed-count."""
        labels = ("listener", "mechanism", "result")
        first = CounterMetricFamily("headrace_authentications", "Log-ins of clients.", labels=labels)
        renewed = CounterMetricFamily(
            "headrace_reauthentications", "Log-ins that renew a session.", labels=labels
        )
        expired = CounterMetricFamily(
            "headrace_expired_connections_killed",
            "Connections closed since their session was over.",
            labels=("listener",),
        )
        for listener, figures in self.log_ins.items():
            for (mechanism, is_good, again), count in figures.counts.items():
                result = "successful" if is_good else "failed"
                (renewed if again else first).add_metric((listener, mechanism or "none", result), count)
            expired.add_metric((listener,), figures.expired_count)
        yield from (first, renewed, expired)

    def _by_api(self, name: str, text: str, values: Sequence[float]) -> Metric:
        family = CounterMetricFamily(name, text, labels=["api"])
        for key, handler in HANDLERS.items():
            if values[key]:
                family.add_metric([handler.name], values[key])
        return family

    def _errors(self) -> Metric:
        family = CounterMetricFamily(
            "headrace_request_errors", "Answers with an error, by API and error.", labels=["api", "error"]
        )
        for (key, code), count in self.errors.items():
            family.add_metric([HANDLERS[key].name, ErrorCode(code).name], count)
        return family

    def _throttles(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "headrace_throttled_requests",
            "Requests after which a client had to wait, by quota.",
            labels=["quota"],
        )
        seconds = CounterMetricFamily(
            "headrace_throttle_seconds", "Time for which clients had to wait, by quota.", labels=["quota"]
        )
        for quota, count in self.throttles.items():
            requests.add_metric([quota], count)
            seconds.add_metric([quota], self.throttle_ms[quota] / 1000)
        yield from (requests, seconds)
        yield GaugeMetricFamily(
            "headrace_muted_connections", "Connections that wait for a quota.", self.muted_connections
        )

    def _connection_throttles(self) -> Iterator[Metric]:
        labels = ["listener", "by"]
        connections = CounterMetricFamily(
            "headrace_throttled_connections",
            "Connections that came sooner than a limit allows, by listener and by whose limit.",
            labels=labels,
        )
        seconds = CounterMetricFamily(
            "headrace_connection_throttle_seconds",
            "Time for which they were held up, by listener and by whose limit.",
            labels=labels,
        )
        for key, (count, throttle_ms) in self.connection_throttles.items():
            connections.add_metric(key, count)
            seconds.add_metric(key, throttle_ms / 1000)
        yield from (connections, seconds)

    def _refused_writes(self) -> Iterator[Metric]:
        labels = ["directory"]
        refused = CounterMetricFamily(
            "headrace_refused_writes", "Appends that a data directory's disk refused.", labels=labels
        )
        refusing = GaugeMetricFamily(
            "headrace_log_directory_refuses_writes",
            "1 from a refused write until the next that succeeds, or until there is room.",
            labels=labels,
        )
        for directory in self.directories():
            refused.add_metric([directory], self.refused_writes.counts.get(directory, 0))
            refusing.add_metric([directory], directory in self.refused_writes.directories)
        yield from (refused, refusing)

    def _broker(self) -> Iterator[Metric]:
        controller_id, is_controller = self.controller()
        yield from BuildInfo().collect()
        yield GaugeMetricFamily("headrace_serving", "1 once a start is over.", self.is_serving)
        yield GaugeMetricFamily("headrace_controller_id", "The controller; -1: unknown.", controller_id)
        yield GaugeMetricFamily(
            "headrace_active_controller", "1 on the broker that is the controller.", is_controller
        )
        yield from self._controller()
        yield GaugeMetricFamily("headrace_partitions", "Replicas here.", len(list(self.replicas())))
        yield GaugeMetricFamily("headrace_groups", "Consumer groups kept here.", self.groups())
        transactions = GaugeMetricFamily(
            "headrace_transactional_ids", "Transactional ids kept here, by state.", labels=["state"]
        )
        for state, count in self.transactions().items():
            transactions.add_metric([state], count)
        yield transactions
        yield CounterMetricFamily("headrace_flushes", "Logs synced.", self.flush_times.count)
        yield CounterMetricFamily(
            "headrace_flush_seconds", "Time that syncing logs took.", self.flush_times.seconds
        )
        yield GaugeMetricFamily(
            "headrace_event_loop_delay_seconds",
            "How late the event loop was at worst, of 20 looks in the last minute.",
            self.loop_delay.seconds_max,
        )

    def _opening(self) -> Iterator[Metric]:
        opening = self.opening
        yield GaugeMetricFamily(
            "headrace_start_logs_left", "Logs that a start has to open.", opening.logs_left
        )
        yield GaugeMetricFamily(
            "headrace_start_bytes_left", "Bytes that recovery may have to check.", opening.bytes_left
        )
        yield CounterMetricFamily(
            "headrace_recovered_segments", "Segments that recovery checked.", opening.segments_checked
        )
        yield CounterMetricFamily(
            "headrace_recovered_bytes", "Bytes of segments that recovery checked.", opening.bytes_checked
        )
        yield self._rot()

    def _rot(self) -> Metric:
        family = GaugeMetricFamily(
            "headrace_log_rotten_places",
            "Stretches of bad bytes that recovery found in a replica's log and kept, where there are any.",
            labels=["topic", "partition"],
        )
        for replica in self.replicas():
            if replica.log.rotten_places:
                family.add_metric([replica.topic, str(replica.partition)], replica.log.rotten_places)
        return family

    def _zookeeper(self) -> Iterator[Metric]:
        watch = self.zookeeper
        if watch is None:
            return
        yield GaugeMetricFamily(
            "headrace_zookeeper_connected", "1 while ZooKeeper answers.", watch.is_connected
        )
        yield GaugeMetricFamily(
            "headrace_zookeeper_registered",
            "1 while this broker is registered in its session.",
            watch.is_registered,
        )
        yield GaugeMetricFamily(
            "headrace_zookeeper_away_seconds",
            "Since when ZooKeeper does not answer, or is not this cluster's; 0 while all is well.",
            watch.away_s,
        )
        yield CounterMetricFamily("headrace_zookeeper_sessions", "ZooKeeper sessions begun.", watch.sessions)

    def _size_histogram(self) -> Metric:
        total, buckets = 0, []
        for bits, count in enumerate(self.request_sizes):
            total += count
            buckets.append((str(float((1 << bits) - 1)), total))
        family = HistogramMetricFamily("headrace_request_size_bytes", "Sizes of requests.")
        family.add_metric([], [*buckets, ("+Inf", total)], sum_value=sum(self.request_bytes))
        return family

    def _following(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "headrace_replication_bytes_in", "Bytes fetched from leaders.", self.replicated_bytes_in
        )
        yield CounterMetricFamily(
            "headrace_replication_bytes_out", "Bytes sent to followers.", self.replicated_bytes_out
        )
        labels = ["leader"]
        partitions = GaugeMetricFamily(
            "headrace_replica_fetcher_partitions", "Partitions fetched from a leader.", labels=labels
        )
        lag = GaugeMetricFamily(
            "headrace_replica_fetcher_max_lag",
            "Messages that the partition furthest behind its leader is behind.",
            labels=labels,
        )
        failed = GaugeMetricFamily(
            "headrace_replica_fetcher_failed_partitions",
            "Partitions that are not fetched before the controller tells of another leader epoch.",
            labels=labels,
        )
        for figures in self.followed():
            leader = [str(figures.source)]
            partitions.add_metric(leader, figures.partitions)
            lag.add_metric(leader, figures.lag_max)
            failed.add_metric(leader, figures.failed)
        yield from (partitions, lag, failed)

    def _cleaner(self) -> Iterator[Metric]:
        found = self.cleaner()
        if found is None:
            return
        figures, now_ms = found
        yield GaugeMetricFamily(
            "headrace_cleaner_max_dirty_percent",
            "Dirty bytes of the dirtiest compacted log.",
            figures.max_dirty_ratio * 100,
        )
        yield CounterMetricFamily(
            "headrace_cleaner_cleaned_bytes", "Bytes of log that were cleaned.", figures.cleaned_bytes
        )
        yield GaugeMetricFamily(
            "headrace_cleaner_uncleanable_partitions",
            "Logs that could not be compacted.",
            figures.uncleanable_partitions,
        )
        if figures.ended_ms is not None:
            yield GaugeMetricFamily(
                "headrace_cleaner_last_run_seconds", "How long the last run took.", figures.last_run_s
            )
            yield GaugeMetricFamily(
                "headrace_cleaner_seconds_since_last_run",
                "How long ago the last run ended.",
                (now_ms - figures.ended_ms) / 1000,
            )

    def _controller(self) -> Iterator[Metric]:
        elections, unclean = self.elections()
        yield CounterMetricFamily("headrace_leader_elections", "Leaders elected by this broker.", elections)
        yield CounterMetricFamily(
            "headrace_unclean_leader_elections", "Those of them that were not in sync.", unclean
        )
        offline, imbalance = self.controller_figures()
        yield GaugeMetricFamily(
            "headrace_offline_partitions", "Partitions of the cluster that nobody leads.", offline
        )
        yield GaugeMetricFamily(
            "headrace_preferred_replica_imbalance",
            "Partitions of the cluster that another than their first replica leads.",
            imbalance,
        )

    def _replication(self) -> Iterator[Metric]:
        led = list(self.led())
        counts = self.isr_counts
        yield GaugeMetricFamily("headrace_led_partitions", "Partitions led here.", len(led))
        yield GaugeMetricFamily(
            "headrace_under_replicated_partitions",
            "Partitions led here that have replicas out of sync.",
            sum(partition.is_under_replicated for partition in led),
        )
        yield GaugeMetricFamily(
            "headrace_under_min_isr_partitions",
            "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
            sum(partition.is_under_min_isr for partition in led),
        )
        yield GaugeMetricFamily(
            "headrace_at_min_isr_partitions",
            "Partitions led here with just min.insync.replicas in-sync replicas.",
            sum(len(partition.isr) == partition.isr_size_min for partition in led),
        )
        yield GaugeMetricFamily(
            "headrace_reassigning_partitions",
            "Partitions led here that are on their way to other brokers.",
            sum(partition.is_reassigning for partition in led),
        )
        yield GaugeMetricFamily(
            "headrace_offline_replicas",
            "Replicas here that went with data directories that failed.",
            self.offline_replicas(),
        )
        yield CounterMetricFamily("headrace_isr_shrinks", "Replicas taken out of an ISR.", counts.shrinks)
        yield CounterMetricFamily("headrace_isr_expands", "Replicas taken into an ISR.", counts.expands)
        yield CounterMetricFamily(
            "headrace_failed_isr_updates", "ISR changes that the controller did not take.", counts.failed
        )
        yield CounterMetricFamily(
            "headrace_leaderships_refused",
            "Partitions not led as their logs had lost what was committed.",
            self.leaderships_refused(),
        )

    def _partitions(self) -> Iterator[Metric]:
        led = list(self.led())
        for name, text, value in PARTITION_GAUGES:
            family = GaugeMetricFamily(name, text, labels=["topic", "partition"])
            family.samples = _samples(name, led, value)  # type: ignore[assignment]
            yield family


def _samples(name: str, led: Iterable[Partition], value: Callable[[PartitionLog], int]) -> Iterator[Sample]:
    for partition in led:
        labels = {"topic": partition.topic, "partition": str(partition.partition)}
        yield Sample(name, labels, value(partition.log))


def _by_topic(name: str, text: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=["topic"])
    for topic, value in list(values.items()):
        family.add_metric([topic], value)
    return family
