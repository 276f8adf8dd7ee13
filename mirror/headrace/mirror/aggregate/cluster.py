"""The cluster that sources are brought into, as its members see it: from within a broker, or over the network.

What it knows of topics and leaders is of the last look; what it does may raise FAILURES and KafkaErrors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from headrace.broker.client.security import ClientSecurity
from headrace.broker.clock import Clock
from headrace.broker.errors import ErrorCode
from headrace.broker.wire.client.view import Address

Outcome = tuple[int, str]
"""Error code, 0 for none, and what the broker says to it."""


class Cluster(Protocol):
    """`member_id` is a number that no other member has."""

    @property
    def member_id(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def properties(self) -> Mapping[str, str]:
        """How the member is configured."""
        ...

    @property
    def security(self) -> ClientSecurity:
        """How a member is let in by the cluster's brokers."""
        ...

    def leader_address(self, topic: str, partition: int) -> Address | None:
        """Where the leader of a partition is reached; None without one that is alive."""
        ...

    def refresh_soon(self) -> None:
        """Something suggests that leaders are others by now."""
        ...

    async def look_at(self, topics: Collection[str]) -> None:
        """Know how these topics are now."""
        ...

    def partition_count(self, topic: str) -> int | None:
        """None where there is no such topic."""
        ...

    def configs_of(self, topic: str) -> Mapping[str, str]:
        """Those that say whose messages it has; nothing of a topic that is not there."""
        ...

    async def create(self, topic: str, count: int, configs: Mapping[str, str]) -> Outcome:
        """Have a topic, with these configurations from its first moment."""
        ...

    async def grow(self, topic: str, count: int) -> Outcome:
        """Have so many partitions."""
        ...

    async def mark(self, topic: str, configs: Mapping[str, str]) -> None:
        """Have it say whose messages it has: the clusters that are named are added to those that are known."""
        ...


def sentence(outcome: Outcome) -> str:
    """Why the target refused."""
    code, message = outcome
    name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
    return f"the target says {name}{f': {message}' if message else ''}"
