"""What is stored of quotas, brought to what counts usage."""

from __future__ import annotations

import pytest

from headrace.broker.config.sections import Quotas
from headrace.broker.quotas.entities import CLIENTS, IPS, USERS
from headrace.broker.server.settings.client_quotas import ClientQuotas, client_usage

NOW_MS = 1_000_000


def test_each_key_limits_its_own_usage_of_its_own_entity() -> None:
    usage = client_usage(Quotas())
    quotas = ClientQuotas(usage)
    quotas.changed(USERS, "a%2Ab", {"producer_byte_rate": "10", "SCRAM-SHA-256": "secret"})
    quotas.changed(USERS, "a%2Ab/clients/app", {"consumer_byte_rate": "20"})
    quotas.changed(CLIENTS, "<default>", {"request_percentage": "30.5", "controller_mutation_rate": "4E1"})
    shares = [
        getattr(usage, name).share("a*b", "app", NOW_MS)
        for name in ("produced", "fetched", "requests", "mutations")
    ]
    assert [share.limit for share in shares] == [10, 20, 30.5, 40]
    assert usage.fetched.share("a*b", "tool", NOW_MS) is None
    quotas.changed(USERS, "a%2Ab", {})
    quotas.changed(CLIENTS, "<default>", {})
    assert usage.is_limited
    quotas.changed(USERS, "a%2Ab/clients/app", {})
    assert [usage.is_limited] == [False]


def test_windows_are_those_that_are_set() -> None:
    usage = client_usage(Quotas(quota_window_num=3, quota_window_size_seconds=2))
    ClientQuotas(usage).changed(USERS, "<default>", {"consumer_byte_rate": "100"})
    assert usage.fetched.burst("alice", None, NOW_MS) == 100 * 2 * 2


def test_what_is_no_number_is_no_limit_and_addresses_are_others_concern(
    caplog: pytest.LogCaptureFixture,
) -> None:
    usage = client_usage(Quotas())
    quotas = ClientQuotas(usage)
    quotas.changed(IPS, "10.0.0.1", {"connection_creation_rate": "1"})
    quotas.changed(USERS, "alice", {"producer_byte_rate": "much"})
    assert not usage.is_limited
    assert [record.getMessage() for record in caplog.records] == ["a quota is passed over"]
