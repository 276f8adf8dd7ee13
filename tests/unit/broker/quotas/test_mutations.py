"""What one request takes from the bucket of its client; the figures are Apache Kafka's."""

from __future__ import annotations

import pytest

from headrace.broker.errors import ThrottlingQuotaExceededError
from headrace.broker.quotas.buckets import TokenBucket, Windows
from headrace.broker.quotas.mutations import UNLIMITED, Allowance


class World:
    """A bucket of twenty tokens that gets two a second."""

    def __init__(self, limit: float = 2) -> None:
        self.now_ms = 1_000_000
        self.limit = limit
        self.bucket = TokenBucket(Windows(count=10))

    def allowance(self, *, is_strict: bool) -> Allowance:
        return Allowance(self.bucket, self.limit, lambda: self.now_ms, is_strict=is_strict)


def test_a_strict_one_refuses_what_comes_once_it_is_overdrawn() -> None:
    world = World()
    allowance = world.allowance(is_strict=True)
    allowance.take(30)
    assert allowance.throttle_ms == 0, "who was given more than there is does not wait"
    with pytest.raises(ThrottlingQuotaExceededError):
        allowance.take(1)
    assert allowance.throttle_ms == 5000
    world.now_ms += 2000
    assert allowance.throttle_ms == 3000, "an answer that took its time tells what is left"
    with pytest.raises(ThrottlingQuotaExceededError):
        world.allowance(is_strict=True).take(1)
    world.now_ms += 3000
    world.allowance(is_strict=True).take(1)


def test_a_permissive_one_takes_everything_and_lets_its_client_wait() -> None:
    world = World()
    allowance = world.allowance(is_strict=False)
    allowance.take(20)
    assert allowance.throttle_ms == 0
    allowance.take(10)
    assert allowance.throttle_ms == 5000
    allowance.take(10)
    assert allowance.throttle_ms == 10_000


def test_an_allowance_of_nothing_is_overdrawn_once_and_tells_no_time() -> None:
    world = World(limit=0)
    world.allowance(is_strict=True).take(1)
    allowance = world.allowance(is_strict=True)
    with pytest.raises(ThrottlingQuotaExceededError):
        allowance.take(1)
    assert allowance.throttle_ms == 0


def test_one_below_nothing_is_always_overdrawn() -> None:
    allowance = World(limit=-1).allowance(is_strict=True)
    with pytest.raises(ThrottlingQuotaExceededError):
        allowance.take(1)
    assert allowance.throttle_ms == 0


def test_who_has_no_limit_takes_what_it_likes() -> None:
    UNLIMITED.take(10**9)
    assert UNLIMITED.throttle_ms == 0
