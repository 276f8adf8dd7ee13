"""The compression codecs of record batches, each bounded in what it may unpack to.

Owns the codec ids of a batch's attributes and the framings Kafka gives them: gzip, snappy-java blocks (a
plain snappy block is read too), LZ4 frames of independent blocks (the Java client refuses linked ones),
zstd frames. A batch of a few bytes may claim gigabytes, so output goes into a buffer that never grows past
the bound. Knows nothing of records.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Any

import cramjam

from headrace.broker.errors import (
    CorruptMessageError,
    InvalidConfigError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from headrace.broker.wire.varint import Bytes

_SIZE = Struct(">i")
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + _SIZE.pack(1) + _SIZE.pack(1)  # version, lowest compatible version
_SNAPPY_BLOCK_SIZE = 32 * 1024  # what the Java client writes
_GUESS_SIZE_MIN = 16 * 1024
_GUESS_RATIO = 4
_GUESS_SIZE_SMALL = 1024 * 1024
_OUTPUT_FULL = "failed to write whole buffer"


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(name: str) -> Codec:
    """The codec that `compression.type` names; `producer` and `uncompressed` are no codecs of a batch."""
    try:
        return Codec[name.upper()]
    except KeyError:
        allowed = ", ".join(codec.name.lower() for codec in Codec)
        raise InvalidConfigError(f"no compression codec is called {name!r}: use one of {allowed}") from None


def target_codec(compression_type: str) -> int | None:
    """The codec that a topic's compression.type asks for; None for `producer`, which leaves batches as they come."""
    if compression_type == "producer":
        return None
    return Codec.NONE if compression_type == "uncompressed" else codec_of(compression_type)


def compress(codec: int, data: Bytes) -> bytes:
    """Raises UnsupportedCompressionTypeError for a codec id that Kafka does not define."""
    if codec == Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[_known(codec)](data)


def decompress(codec: int, data: Bytes, size_max: int) -> memoryview:
    """The unpacked bytes, at most `size_max` of them (an uncompressed input is returned as it is).

    Raises CorruptMessageError for data the codec cannot read, MessageTooLargeError for more than `size_max`.
    """
    if codec == Codec.NONE:
        return memoryview(data)
    return _DECOMPRESSORS[_known(codec)](data, size_max)


def _known(codec: int) -> Codec:
    try:
        return Codec(codec)
    except ValueError:
        raise UnsupportedCompressionTypeError(f"compression codec {codec} is not one of 0 to 4") from None


def _compress_gzip(data: Bytes) -> bytes:
    return bytes(cramjam.gzip.compress(data))


def _compress_snappy(data: Bytes) -> bytes:
    parts = [_SNAPPY_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _SNAPPY_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK_SIZE]))
        parts += (_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_zstd(data: Bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=3))


def _decompress_growing(unpack_into: Callable[[Any, Any], int], data: Bytes, size_max: int) -> memoryview:
    """Guesses the size and grows fourfold, then twofold, so a bomb costs at most `size_max` and an honest batch one try."""
    size = min(size_max, max(_GUESS_SIZE_MIN, _GUESS_RATIO * len(data)))
    while True:
        output = bytearray(size)
        try:
            return memoryview(output)[: unpack_into(data, output)]
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CorruptMessageError(f"the compressed records cannot be read: {error}") from None
        if size == size_max:
            raise _too_large(size_max)
        size = min(size_max, size * (_GUESS_RATIO if size < _GUESS_SIZE_SMALL else 2))


def _decompress_snappy(data: Bytes, size_max: int) -> memoryview:
    view = memoryview(data)
    blocks = _snappy_java_blocks(view) if view[:8] == _SNAPPY_MAGIC else [view]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        total = sum(sizes)
        if total > size_max:
            raise _too_large(size_max)
        output = memoryview(bytearray(total))
        position = 0
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, output[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        raise CorruptMessageError(f"the snappy block cannot be read: {error}") from None
    return output


def _snappy_java_blocks(view: memoryview) -> list[memoryview]:
    blocks = []
    position = len(_SNAPPY_HEADER)
    while position < len(view):
        try:
            (size,) = _SIZE.unpack_from(view, position)
        except StructError:
            raise CorruptMessageError("the snappy data ends inside a block's size") from None
        position += _SIZE.size
        if not 0 < size <= len(view) - position:
            raise CorruptMessageError(
                f"a snappy block of {size} bytes does not fit the {len(view)} bytes given"
            )
        blocks.append(view[position : position + size])
        position += size
    return blocks


def _too_large(size_max: int) -> MessageTooLargeError:
    return MessageTooLargeError(f"the records unpack to more than the {size_max} bytes allowed")


_COMPRESSORS: dict[Codec, Callable[[Bytes], bytes]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[Codec, Callable[[Bytes, int], memoryview]] = {
    Codec.GZIP: lambda data, size_max: _decompress_growing(cramjam.gzip.decompress_into, data, size_max),
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: lambda data, size_max: _decompress_growing(cramjam.lz4.decompress_into, data, size_max),
    Codec.ZSTD: lambda data, size_max: _decompress_growing(cramjam.zstd.decompress_into, data, size_max),
}
