"""Which batches hold committed messages, wherever an answer begins."""

from headrace.broker.log.segment import Place
from headrace.broker.wire.batches import Record, encode_batch, iter_batches
from headrace.mirror.aggregate.committed import Aborted, Committed

ABORT, COMMIT = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"


def batch(
    base: int, producer: int = -1, *, marker: bytes | None = None, transactional: bool = True
) -> bytearray:
    record = Record(0, 1, marker, b"\x00" * 6, [])
    is_transactional = transactional and producer >= 0
    return encode_batch(
        [record],
        base_offset=base,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=base,
        transactional=is_transactional,
        control=marker is not None,
    )


LOG = [
    batch(0),
    batch(1, 7),
    batch(2, 8),
    batch(3),
    batch(4, 7, marker=ABORT),
    batch(5, 7),
    batch(6, 8, marker=COMMIT),
    batch(7, 7, marker=COMMIT),
    batch(8, 9, transactional=False),
]
ABORTED: list[Aborted] = [(7, 1)]


def committed_from(begin: int, aborted: list[Aborted]) -> list[int]:
    records = memoryview(b"".join(LOG[begin:]))
    found = Committed(aborted)
    return [h.base_offset for at, h in iter_batches(records) if found.holds(records, Place(at, h))]


def test_aborted_messages_and_markers_are_left_out() -> None:
    assert committed_from(0, ABORTED) == [0, 2, 3, 5, 8]


def test_it_is_the_same_in_the_middle_of_a_transaction() -> None:
    for begin in range(5):
        assert committed_from(begin, ABORTED) == [n for n in (0, 2, 3, 5, 8) if n >= begin]
    assert committed_from(5, []) == [5, 8]
