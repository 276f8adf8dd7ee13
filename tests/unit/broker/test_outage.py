"""When a failure that lasts is told."""

from headrace.broker.outage import REPEAT_MS, Outage


def test_a_failure_is_told_at_once_and_then_once_a_minute() -> None:
    outage = Outage()
    told = [now_ms for now_ms in range(1, 3 * REPEAT_MS, 5000) if outage.failed(now_ms)]
    assert told == [1, 1 + REPEAT_MS, 1 + 2 * REPEAT_MS]
    assert (outage.count, outage.seconds) == (36, 175)


def test_it_is_over_once_nothing_has_failed_for_a_minute() -> None:
    outage = Outage()
    assert not outage.is_over(REPEAT_MS)
    outage.failed(1)
    assert not outage.is_over(2)
    outage.failed(3)
    assert not outage.is_over(2 + REPEAT_MS)
    assert outage.is_over(3 + REPEAT_MS)
