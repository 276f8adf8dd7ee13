"""A lease lasts as long as ZooKeeper must have waited, from when it was asked."""

from headrace.mirror.aggregate.lease import Lease


def test_it_lasts_from_the_question_on() -> None:
    lease = Lease(600)
    assert not lease.holds(0)
    lease.renewed(1_000)
    assert lease.holds(1_599)
    assert not lease.holds(1_600)


def test_a_late_answer_does_not_shorten_it_and_the_sessions_end_ends_it() -> None:
    lease = Lease(600)
    lease.renewed(1_000)
    lease.renewed(900)
    assert lease.holds(1_599)
    lease.ended()
    assert not lease.holds(1_001)
