"""The text files that tell of a broker's logs."""

import pytest

from headrace.broker.log.checkpoints import (
    CheckpointError,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_epochs,
    encode_offsets,
)


def test_checkpoints_are_kafkas_text_files() -> None:
    offsets_by_partition = {("b", 1): 5, ("a", 10): 0}
    assert encode_offsets(offsets_by_partition) == b"0\n2\na 10 0\nb 1 5\n"
    assert decode_offsets(encode_offsets(offsets_by_partition)) == offsets_by_partition
    assert encode_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    assert decode_epochs(b"0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]
    assert decode_meta_properties(b"#\n#Sat Nov 21\ncluster.id=x=y\nversion=0\n") == {
        "cluster.id": "x=y",
        "version": "0",
    }
    for damaged in (b"1\n0\n", b"0\n1\n3 17\n2 18\n", b"0\n2\n3 17\n2 18\n", b"\xff"):
        with pytest.raises(CheckpointError):
            decode_epochs(damaged)
    with pytest.raises(CheckpointError):
        decode_partition_metadata(b"version: 0\n")
