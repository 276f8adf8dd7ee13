"""Which connections may be, and how fast they may come; the figures are Apache Kafka's."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.quotas import connections as connections_module
from headrace.broker.quotas.buckets import Windows
from headrace.broker.quotas.connections import ConnectionLimits, Connections, ListenerLimits

OUTSIDE, BROKERS = "OUTSIDE", "BROKERS"
HERE, THERE = "10.0.0.1", "10.0.0.2"
NOW_MS = 1_000_000


def limits(outside: ListenerLimits | None = None, **others: Any) -> ConnectionLimits:
    listeners = {OUTSIDE: outside or ListenerLimits(), BROKERS: ListenerLimits()}
    return ConnectionLimits(listeners=listeners, protected=BROKERS, **others)


def made(found: ConnectionLimits) -> Connections:
    return Connections(found, Windows())


def test_brokers_have_a_slot_where_the_broker_is_full_and_others_have_to_go() -> None:
    connections = made(limits(count_max=2))
    for _ in range(2):
        assert connections.has_slot(OUTSIDE)
        connections.opened(OUTSIDE, HERE)
    assert not connections.has_slot(OUTSIDE)
    assert connections.has_slot(BROKERS)
    assert connections.excess_count == 0
    connections.opened(BROKERS, THERE)
    assert connections.excess_count == 1
    connections.closed(OUTSIDE, HERE)
    assert connections.excess_count == 0
    assert not connections.has_slot(OUTSIDE)


def test_brokers_are_never_those_who_have_to_go() -> None:
    connections = made(limits(count_max=1))
    for _ in range(3):
        connections.opened(BROKERS, THERE)
    assert connections.excess_count == 0
    connections.opened(OUTSIDE, HERE)
    assert connections.excess_count == 1


def test_a_listener_has_a_limit_of_its_own() -> None:
    connections = made(limits(ListenerLimits(count_max=1)))
    connections.opened(OUTSIDE, HERE)
    assert not connections.has_slot(OUTSIDE)
    connections.use(limits(ListenerLimits(count_max=2)))
    assert connections.has_slot(OUTSIDE)


def test_connections_wait_for_their_listener_or_for_the_broker_a_window_at_most() -> None:
    connections = made(limits(ListenerLimits(rate=2), rate=3))
    waits = [connections.listener_wait_ms(OUTSIDE, NOW_MS) for _ in range(32)]
    # Ten whole windows of two; one above is half a second.
    assert waits[:22] == [0] * 20 + [500, 1000]
    assert waits[-1] == 1000
    assert connections.listener_wait_ms(BROKERS, NOW_MS) == 0, "those of brokers are not counted with others"


def test_the_rate_of_the_broker_holds_for_all_listeners_but_that_of_brokers() -> None:
    connections = made(limits(rate=1))
    waits = [connections.listener_wait_ms(OUTSIDE, NOW_MS) for _ in range(11)]
    assert waits == [0] * 10 + [1000]
    assert connections.listener_wait_ms(BROKERS, NOW_MS) == 0


def test_what_an_address_may_not_make_counts_nowhere() -> None:
    connections = made(limits(rate=1))
    connections.limit_address(HERE, 0)
    for _ in range(30):
        assert connections.listener_wait_ms(OUTSIDE, NOW_MS) == 0
        assert connections.address_wait_ms(OUTSIDE, HERE, NOW_MS) == 1000
    connections.limit_address(HERE, None)
    assert connections.address_wait_ms(OUTSIDE, HERE, NOW_MS) == 0


def test_each_address_without_a_rate_of_its_own_has_the_default() -> None:
    connections = made(limits())
    connections.limit_address(None, 1)
    connections.limit_address(THERE, 100)
    waits = [connections.address_wait_ms(OUTSIDE, HERE, NOW_MS) for _ in range(11)]
    assert waits == [0] * 10 + [1000]
    assert not any(connections.address_wait_ms(OUTSIDE, THERE, NOW_MS) for _ in range(11))


def test_addresses_of_late_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "ADDRESSES_COUNT_MAX", 10)
    connections = made(limits())
    connections.limit_address(None, 1)
    for number in range(100):
        connections.address_wait_ms(OUTSIDE, f"10.0.1.{number}", NOW_MS + number)
    assert len(connections._address_rates) <= 10
    assert "10.0.1.99" in connections._address_rates


def test_of_an_address_without_connections_nothing_is_kept() -> None:
    connections = made(limits(per_address_max=1))
    connections.opened(OUTSIDE, HERE)
    assert connections.is_one_too_many(HERE)
    connections.closed(OUTSIDE, HERE)
    assert not connections.is_one_too_many(HERE)
    assert not connections._by_address
