"""A member's view of its target: what it says of one that is silent."""

import asyncio
from types import SimpleNamespace

import pytest

from headrace.broker.outage import REPEAT_MS
from headrace.mirror.aggregate import wire_cluster
from headrace.mirror.aggregate.wire_cluster import WireCluster


def test_a_target_that_is_silent_is_told_of_once_a_minute_and_when_it_answers_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headrace")
    clock = SimpleNamespace(now=0)
    clock.monotonic_ms = lambda: clock.now
    cluster = WireCluster([("127.0.0.1", 1)], {}, 7, clock, max_age_ms=1)
    monkeypatch.setattr(wire_cluster, "LOOK_PAUSE_SECONDS", 0)

    async def look() -> None:
        clock.now += 5000
        if clock.now <= 2 * REPEAT_MS:
            raise ConnectionRefusedError
        if clock.now > 4 * REPEAT_MS:
            raise asyncio.CancelledError

    monkeypatch.setattr(cluster, "_look", look)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cluster.follow())
    told = [record.getMessage() for record in caplog.records]
    assert [text.split(" failed=")[0] for text in told] == [
        "target does not answer",
        "target does not answer",
        "target answers again",
    ]
