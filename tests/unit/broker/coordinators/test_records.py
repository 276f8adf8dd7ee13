"""Which partition keeps a key is what Java computes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.coordinators import records


@pytest.mark.parametrize(
    ("key", "count", "partition"),
    # "test".hashCode() is 3556498; "polygenelubricants" hashes to Integer.MIN_VALUE, which Kafka takes as 0;
    # "é😀" exercises UTF-16 units.
    [("test", 50, 48), ("polygenelubricants", 50, 0), ("", 50, 0), ("é😀", 50, 12)],
)
def test_a_key_lives_in_the_partition_that_java_computes(key: str, count: int, partition: int) -> None:
    assert records.partition_for(key, count) == partition


@given(st.text(), st.integers(0, 3))
def test_a_name_of_any_length_is_hashed_as_java_does(text: str, doublings: int) -> None:
    name = text * 7**doublings
    units = name.encode("utf-16-be")
    hashed = 0
    for index in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[index : index + 2])) % (1 << 32)
    assert records.java_hash(name) == hashed
