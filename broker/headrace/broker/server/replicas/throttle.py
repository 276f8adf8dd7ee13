"""Which replicas this broker holds back while they are out of sync, and at which rate (KIP-73).

One for what it sends as a leader, one for what it takes as a follower: the rate is the broker's, dynamic, the replicas are
named by their topics' configuration, each time anew. Without a rate it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.clock import Clock
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.keys import LONG_MAX
from headrace.broker.replication.throttle import Throttle, throttled_partitions

LEADER, FOLLOWER = "leader", "follower"


class ReplicaThrottle:
    """`direction` is LEADER or FOLLOWER; `of_topic(name, topic)` gives what a topic's configuration says."""

    def __init__(
        self,
        direction: str,
        broker_id: int,
        of_topic: Callable[[str, str], str],
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._broker_id = broker_id
        self._of_topic = of_topic
        self._clock = clock
        self._direction = direction
        self._replicas_key = f"{direction}.replication.throttled.replicas"
        settings = config.replication
        self._throttle = Throttle(
            windows=settings.replication_quota_window_num,
            window_ms=settings.replication_quota_window_size_seconds * 1000,
        )
        self.use_config(config)

    def use_config(self, config: BrokerConfig) -> None:
        """Use another rate from now on."""
        settings = config.replication
        rates = {
            LEADER: settings.leader_replication_throttled_rate,
            FOLLOWER: settings.follower_replication_throttled_rate,
        }
        rate = rates[self._direction]
        self._throttle.rate_max = None if rate == LONG_MAX else rate

    @property
    def is_active(self) -> bool:
        """Whether there is a rate."""
        return self._throttle.rate_max is not None

    def covers(self, topic: str, partition: int) -> bool:
        """Whether the replica is among those that count, and that are held back while they are out of sync."""
        if not self.is_active:
            return False
        text = self._of_topic(self._replicas_key, topic)
        return bool(text) and throttled_partitions(text, self._broker_id)(partition)

    def record(self, size: int) -> None:
        """So many bytes of replicas that it covers were copied."""
        self._throttle.record(size, self._clock.monotonic_ms())

    @property
    def is_exceeded(self) -> bool:
        """Whether what it covers and is out of sync has to wait."""
        return self._throttle.is_exceeded(self._clock.monotonic_ms())

    def holds_back(self, topic: str, partition: int) -> bool:
        """Whether this replica, which is out of sync, has to wait."""
        return self.covers(topic, partition) and self.is_exceeded
