"""Which open transactions hang, by what leaders and coordinators say."""

from __future__ import annotations

from headrace.cli.hanging_transactions import Described, ProducerState, hanging, overdue

PLACE = ("orders", 0)


def state(
    producer_id: int, *, start_offset: int = 5, last_ms: int = 0, place: tuple[str, int] = PLACE
) -> ProducerState:
    return ProducerState(
        place=place,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=-1,
        last_sequence=0,
        last_timestamp_ms=last_ms,
        start_offset=start_offset,
    )


def described(producer_id: int, *partitions: tuple[str, int]) -> Described:
    return Described(
        transactional_id="t",
        coordinator=1,
        producer_id=producer_id,
        producer_epoch=0,
        state="Ongoing",
        timeout_ms=60_000,
        start_ms=1,
        partitions=partitions,
    )


def test_what_is_closed_or_has_written_lately_is_not_overdue() -> None:
    closed, late, fresh = state(1, start_offset=-1), state(2, last_ms=0), state(3, last_ms=1)
    assert overdue([closed, late, fresh], now_ms=1000, open_ms_max=1000) == [late]


def test_a_transaction_hangs_whose_coordinator_does_not_expect_it_in_that_partition() -> None:
    awaited, elsewhere, unknown = state(1), state(2), state(3)
    known = [described(1, ("other", 0), PLACE), described(2, ("orders", 1))]
    assert hanging([awaited, elsewhere, unknown], known) == [elsewhere, unknown]
