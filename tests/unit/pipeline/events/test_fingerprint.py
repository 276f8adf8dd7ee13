"""The fingerprint and its vectorised twin agree, and their sum tells multisets of sequences apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.events.fingerprint import (
    MASK,
    fingerprint,
    from_signed,
    mix,
    mix_run,
    producer_key,
    to_signed,
)
from headrace.events.fingerprint_columns import fingerprint_sum, fingerprints

KNOWN = (6468810777538432912, 10229290926754186175)
SEQUENCES = st.lists(st.integers(0, 2**63 - 1), max_size=50)


@given(st.text(max_size=40), SEQUENCES)
def test_the_twins_agree(producer: str, sequences: list[int]) -> None:
    one_by_one = [fingerprint(producer, sequence) for sequence in sequences]
    assert fingerprints(producer, np.array(sequences, dtype=np.int64)).tolist() == one_by_one
    assert fingerprint_sum(producer, sequences) == sum(one_by_one) & MASK


def test_known_values_stay_what_they_are() -> None:
    assert fingerprint("8f14e45f-ceea-467f-a0d6-1f3d9a3f2a11", 0) == KNOWN[0]
    assert fingerprint("8f14e45f-ceea-467f-a0d6-1f3d9a3f2a11", 10**12) == KNOWN[1]


def test_a_loss_and_a_duplicate_do_not_cancel_out() -> None:
    whole = fingerprint_sum("p", range(1000))
    assert fingerprint_sum("p", [*range(999), 5]) != whole
    assert fingerprint_sum("p", [*range(1000), 5, 5]) != whole, "XOR would not see the pair"
    assert fingerprint_sum("q", range(1000)) != whole
    assert fingerprint_sum("p", range(999, -1, -1)) == whole


@given(st.integers(0, MASK))
def test_signed_form_fits_an_avro_long_and_comes_back(value: int) -> None:
    assert -(2**63) <= to_signed(value) < 2**63
    assert from_signed(to_signed(value)) == value


def test_the_sum_of_a_run_is_that_of_its_sequences() -> None:
    key = producer_key("p")
    for first, last in ((0, 0), (5, 4), (0, 99), (2**62, 2**62 + 7)):
        assert mix_run(key, first, last) == sum(mix(key, at) for at in range(first, last + 1)) & MASK
