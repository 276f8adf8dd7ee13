"""The look at the cluster with which `headrace load --once` begins: what cannot work is said before Spark starts.

Owns how long brokers are waited for that do not answer. Must not know tables.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.entrance import NOT_LET_IN
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.partitions import TopicPartition

BROKERS_WAIT_SECONDS: Final = 30.0
"""Longer than a broker's restart."""
ANSWER_SECONDS_MAX: Final = 5.0
"""How long one broker may take for one answer: one that says nothing is told of within half a minute."""
PAUSE_SECONDS: Final = 0.5

logger = get_logger(__name__)


class TopicsClient(Protocol):
    """What is needed of `log_client.LogClient`."""

    def partitions(self, wanted: Callable[[str], bool]) -> list[TopicPartition]: ...


def has_topics(client: TopicsClient, wanted: Callable[[str], bool], stop: threading.Event) -> bool:
    """Return whether the cluster has a topic that is wanted, as soon as a broker answers.

    Raises:
        ConnectionFailedError: none does in time or before the stop, or none lets in.
        KafkaError: the broker refuses to tell.
    """
    begun, told = time.monotonic(), ""
    while True:
        try:
            return bool(client.partitions(wanted))
        except ConnectionFailedError as error:
            is_over = stop.is_set() or time.monotonic() - begun >= BROKERS_WAIT_SECONDS
            if is_over or isinstance(error.__cause__, NOT_LET_IN):
                raise
            if str(error) != told:
                told = str(error)
                logger.warning("waiting for the brokers", reason=error, seconds=BROKERS_WAIT_SECONDS)
        stop.wait(PAUSE_SECONDS)
