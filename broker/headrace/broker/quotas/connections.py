"""Which connections may be, and how fast new ones may come (KIP-306, KIP-402, KIP-612).

A new connection passes four looks, in this order: has its listener a slot (`has_slot`), do listener and broker take
connections that fast (`listener_wait_ms`), does its address make them that fast (`address_wait_ms`), has the address too many
(`is_one_too_many`). The listener that brokers use between them, where there are others, has its own limits only: it gets
a slot even when the broker is full, and then another connection has to go (`excess_count`).

Invariants: who is only counted is never throttled; at most `ADDRESSES_COUNT_MAX` addresses have their rate remembered.
Pure: `now_ms` is monotonic time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.broker.config.keys import INT_MAX
from headrace.broker.quotas.buckets import Rate, Windows

ADDRESSES_COUNT_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """How many connections a listener may have, and take in a second."""

    count_max: int = INT_MAX
    rate: int = INT_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What a broker's configuration says of them; `protected` is the listener between brokers, if it is not the only one."""

    count_max: int = INT_MAX
    rate: int = INT_MAX
    per_address_max: int = INT_MAX
    per_address_overrides: Mapping[str, int] = field(default_factory=dict)
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    protected: str | None = None


class Connections:
    """Counts the connections of a broker, and how fast they come."""

    def __init__(self, limits: ConnectionLimits, windows: Windows) -> None:
        self._limits = limits
        self._windows = windows
        self.count = 0
        self._by_listener: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()
        self._broker_rate = Rate(windows)
        self._listener_rates = {name: Rate(windows) for name in limits.listeners}
        # What /config/ips says; None: of all others.
        self._address_limits: dict[str | None, int] = {}
        self._address_rates: dict[str, Rate] = {}

    def use(self, limits: ConnectionLimits) -> None:
        """From now on; connections that are there stay, but for `excess_count`."""
        self._limits = limits

    def limit_address(self, address: str | None, rate: int | None) -> None:
        """How many connections a second may come from an address, or from each that has no rate of its own; None: any."""
        if rate is None:
            self._address_limits.pop(address, None)
        else:
            self._address_limits[address] = rate

    def has_slot(self, listener: str) -> bool:
        limits = self._limits
        if self._by_listener[listener] >= limits.listeners[listener].count_max:
            return False
        return listener == limits.protected or self.count < limits.count_max

    def listener_wait_ms(self, listener: str, now_ms: int) -> int:
        """A connection comes; for how long it has to wait, and the listener takes no other."""
        wait_ms = 0
        if listener != self._limits.protected:
            wait_ms = self._recorded(self._broker_rate, self._limits.rate, now_ms)
        of_listener = self._limits.listeners[listener].rate
        return max(wait_ms, self._recorded(self._listener_rates[listener], of_listener, now_ms))

    def address_wait_ms(self, listener: str, address: str, now_ms: int) -> int:
        """For how long a connection that nobody will serve is kept; when that is not 0 it does not count."""
        limit = self._address_limits.get(address, self._address_limits.get(None, INT_MAX))
        if limit == INT_MAX:
            return 0
        rate = self._address_rates.get(address)
        if rate is None:
            if len(self._address_rates) >= ADDRESSES_COUNT_MAX:
                self._forget_half()
            rate = self._address_rates[address] = Rate(self._windows)
        wait_ms = self._recorded(rate, limit, now_ms)
        if wait_ms:
            rate.record(-1, limit, now_ms)
            self._listener_rates[listener].record(-1, INT_MAX, now_ms)
            if listener != self._limits.protected:
                self._broker_rate.record(-1, INT_MAX, now_ms)
        return wait_ms

    def is_one_too_many(self, address: str) -> bool:
        """Whether the address has all connections that it may have."""
        limits = self._limits
        most = limits.per_address_overrides.get(address, limits.per_address_max)
        return self._by_address[address] >= most

    def opened(self, listener: str, address: str) -> None:
        self.count += 1
        self._by_listener[listener] += 1
        self._by_address[address] += 1

    def closed(self, listener: str, address: str) -> None:
        self.count -= 1
        self._by_listener[listener] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    @property
    def excess_count(self) -> int:
        """How many connections of other listeners than the protected one have to go."""
        others = self.count - self._by_listener[self._limits.protected or ""]
        return max(0, min(others, self.count - self._limits.count_max))

    def is_protected(self, listener: str) -> bool:
        return listener == self._limits.protected

    def _recorded(self, rate: Rate, limit: int, now_ms: int) -> int:
        rate.record(1, limit, now_ms)
        return min(rate.throttle_ms(limit, now_ms), self._windows.size_ms)

    def _forget_half(self) -> None:
        rates = self._address_rates
        by_use = sorted(rates, key=lambda address: rates[address].used_ms)
        for address in by_use[: ADDRESSES_COUNT_MAX // 2]:
            del rates[address]
