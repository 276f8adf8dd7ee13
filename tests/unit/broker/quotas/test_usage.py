"""Who shares what, and how much is remembered."""

from __future__ import annotations

import pytest

from headrace.broker.config.keys import INT_MAX
from headrace.broker.quotas import usage as usage_module
from headrace.broker.quotas.buckets import Rate, Windows
from headrace.broker.quotas.limits import DEFAULT
from headrace.broker.quotas.usage import ClientUsage, Usage, unlimited

WINDOWS = Windows()
NOW_MS = 1_000_000


def set_limits(usage: ClientUsage, entity: tuple[str, str], produced: float | None) -> None:
    usage.set_limits(entity, produced=produced, fetched=None, requests=None, mutations=None)


def test_clients_of_a_user_share_the_limit_of_the_user_and_others_have_their_own() -> None:
    usage = Usage(Rate, WINDOWS)
    usage.set_limit((DEFAULT, ""), 100)
    assert usage.record("alice", "one", 1000, NOW_MS) == 0
    assert usage.record("alice", "two", 1000, NOW_MS) == 10_000
    assert usage.record("bob", "one", 1000, NOW_MS) == 0


def test_a_client_without_a_limit_is_not_counted() -> None:
    usage = Usage(Rate, WINDOWS)
    usage.set_limit(("alice", ""), 100)
    assert usage.record("bob", None, 1e9, NOW_MS) == 0
    assert usage.burst("bob", None, NOW_MS) is None
    assert usage.burst("alice", None, NOW_MS) == 1000


def test_a_new_limit_counts_what_was_used_before() -> None:
    usage = Usage(Rate, WINDOWS)
    usage.set_limit(("alice", ""), 1000)
    assert usage.record("alice", "app", 5000, NOW_MS) == 0
    usage.set_limit(("alice", ""), 100)
    assert usage.record("alice", "app", 0, NOW_MS) == 40_000
    usage.set_limit(("alice", ""), None)
    assert usage.record("alice", "app", 1e9, NOW_MS) == 0


def test_a_throttle_may_have_a_bound() -> None:
    usage = Usage(Rate, WINDOWS, 1000)
    usage.set_limit(("alice", ""), 1)
    assert usage.record("alice", "app", 10_000, NOW_MS) == 1000


@pytest.mark.parametrize(("throttle_ms_max", "throttle_ms"), [(None, 0), (1000, 1000)])
def test_a_limit_of_nothing_holds_back_only_where_a_throttle_has_a_bound(
    throttle_ms_max: int | None, throttle_ms: int
) -> None:
    usage = Usage(Rate, WINDOWS, throttle_ms_max)
    usage.set_limit(("alice", ""), 0)
    assert usage.record("alice", "app", 10, NOW_MS) == throttle_ms


def test_a_throttle_is_never_longer_than_can_be_told() -> None:
    usage = Usage(Rate, WINDOWS)
    usage.set_limit(("alice", ""), 1)
    assert usage.record("alice", "app", 1e12, NOW_MS) == INT_MAX


def test_only_the_clients_of_late_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_module, "BUCKETS_COUNT_MAX", 10)
    usage = Usage(Rate, WINDOWS)
    usage.set_limit(("", DEFAULT), 100)
    for number in range(100):
        usage.record("alice", f"made-up-{number}", 10_000, NOW_MS + number)
    assert len(usage._buckets) <= 10
    assert len(usage._shares) <= 10
    assert usage.record("alice", "made-up-99", 0, NOW_MS + 99) > 0, "who is throttled stays so"
    assert usage.record("alice", "made-up-0", 0, NOW_MS + 99) == 0


def test_whether_anybody_has_a_limit_is_known_at_once() -> None:
    usage = unlimited()
    assert [usage.is_limited] == [False]
    set_limits(usage, ("alice", ""), 100)
    assert [usage.is_limited] == [True]
    assert usage.limits_producer("alice", "app", NOW_MS)
    assert not usage.limits_producer("bob", "app", NOW_MS)
    set_limits(usage, ("alice", ""), None)
    assert [usage.is_limited] == [False]
