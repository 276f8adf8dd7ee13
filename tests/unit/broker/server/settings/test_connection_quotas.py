"""Limits of connections as they are configured and stored, brought to what counts them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.quotas.entities import CLIENTS, IPS
from headrace.broker.server.settings import connection_quotas
from headrace.broker.server.settings.connection_quotas import ConnectionQuotas
from headrace.broker.tasks import Tasks

NOW_MS = 1_000_000
OUTSIDE, BROKERS = "OUTSIDE", "BROKERS"


def config(**properties: str) -> BrokerConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    listeners = {
        "listeners": "OUTSIDE://:9092,BROKERS://:9093",
        "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": BROKERS,
    }
    return BrokerConfig.from_properties({**listeners, **named})[0]


async def settled(tasks: Tasks) -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_limits_are_those_of_the_listener_or_else_of_the_broker() -> None:
    async def script() -> None:
        quotas = ConnectionQuotas(
            config(max_connections="3", listener_name_outside_max_connections="1"), Tasks()
        )
        connections = quotas.connections
        connections.opened(OUTSIDE, "10.0.0.1")
        assert not connections.has_slot(OUTSIDE)
        told: list[str] = []
        quotas.on_change = lambda: told.append("changed")
        quotas.use_config(config(max_connections="3"))
        assert (connections.has_slot(OUTSIDE), told) == (True, ["changed"])
        connections.opened(OUTSIDE, "10.0.0.1")
        connections.opened(BROKERS, "10.0.0.2")
        assert [connections.has_slot(name) for name in (OUTSIDE, BROKERS)] == [False, True]

    asyncio.run(script())


def test_an_address_has_the_rate_that_is_stored_for_it() -> None:
    async def script() -> None:
        quotas = ConnectionQuotas(config(), Tasks())
        connections = quotas.connections
        quotas.changed(IPS, "10.0.0.1", {"connection_creation_rate": "0"})
        assert connections.address_wait_ms(OUTSIDE, "10.0.0.1", NOW_MS) == 1000
        quotas.changed(IPS, "<default>", {"connection_creation_rate": "0"})
        assert connections.address_wait_ms(OUTSIDE, "10.0.0.2", NOW_MS) == 1000
        for name in ("10.0.0.1", "<default>"):
            quotas.changed(IPS, name, {})
            assert connections.address_wait_ms(OUTSIDE, "10.0.0.1", NOW_MS) == (1000 if name[0] == "1" else 0)
        quotas.changed(CLIENTS, "10.0.0.1", {"connection_creation_rate": "0"})
        assert connections.address_wait_ms(OUTSIDE, "10.0.0.1", NOW_MS) == 0

    asyncio.run(script())


def test_a_name_counts_from_when_somebody_knows_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def resolve(host: str) -> Any:
        return {"office": "10.0.0.7"}.get(host)

    monkeypatch.setattr(connection_quotas, "resolve", resolve)

    async def script() -> None:
        tasks = Tasks()
        quotas = ConnectionQuotas(config(max_connections_per_ip_overrides="office:1,10.0.0.8:2"), tasks)
        connections = quotas.connections
        connections.opened(OUTSIDE, "10.0.0.7")
        connections.opened(OUTSIDE, "10.0.0.8")
        quotas.changed(IPS, "office", {"connection_creation_rate": "0"})
        quotas.changed(IPS, "nobody", {"connection_creation_rate": "0"})
        assert not connections.is_one_too_many("10.0.0.7")
        await settled(tasks)
        assert connections.is_one_too_many("10.0.0.7")
        assert not connections.is_one_too_many("10.0.0.8")
        assert connections.address_wait_ms(OUTSIDE, "10.0.0.7", NOW_MS) == 1000
        await tasks.stop()

    asyncio.run(script())
    assert [record.getMessage() for record in caplog.records] == ["a limit of connections is passed over"]
