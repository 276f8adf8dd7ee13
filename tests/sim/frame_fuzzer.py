"""Request frames as no client writes them, from a seed: every API key and version, valid and damaged in every way.

A frame begins as a valid request, made from the tables of `wire.api` as a row of pieces (a number, a count, a size, the
bytes behind it), so that damage hits what matters: counts and sizes that lie, varints without an end, fields cut or
doubled, a body of another version, batches whose header says what their records do not. `learn` takes ids from answers,
so that requests get past the first check, and `know` what no answer tells. What a client with such rights may do to any
broker is left out (`frame_rights`). The same seed gives the same frames.
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple
from uuid import UUID as Uuid

from frame_batches import odd_records
from frame_rights import CONTROL_KEYS, Epochs, closes, is_allowed
from frame_values import (
    BAD_VARINTS,
    COUNTS,
    COUNTS_OF,
    NUMBERS,
    SIZES,
    TOLD_IDS,
    UNKNOWN_ID,
    USUAL,
    USUAL_IN,
)

from headrace.broker.handlers.table import HANDLERS
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS
from headrace.broker.wire.fields import (
    BYTES,
    RECORDS,
    STRING,
    UUID,
    Array,
    Field,
    FieldType,
    Struct,
)
from headrace.broker.wire.varint import encode_uvarint

LEARNT_COUNT_MAX = 16


class Piece(NamedTuple):
    """A part of a request that damage may hit as a whole; `kind` is number, count, size, data or tags."""

    kind: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """`data` with its size prefix; `is_last` when a broker should close the connection for it."""

    data: bytes
    is_last: bool
    key: int
    version: int


class FrameFuzzer:
    """An endless row of frames."""

    def __init__(self, seed: int | str, keys: Sequence[int] | None = None) -> None:
        self._random = Random(seed)
        # Of those that make, tell of and delete topics two right ones have to meet: they come twice as often.
        self._keys = [*HANDLERS, 4, 19, 20] if keys is None else list(keys)
        self._learnt: dict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=LEARNT_COUNT_MAX))
        self._epochs = Epochs()
        # What is being written: the request's key, the array.
        self._key, self._array = -1, ""
        self._damages: list[tuple[Callable[[list[Piece]], bytes], int]] = [
            (_joined, 8),
            (self._lying_piece, 6),
            (self._without_piece, 2),
            (self._doubled_piece, 2),
            (self._cut, 2),
            (self._flipped_bits, 3),
            (self._with_tags, 1),
            (self._longer, 1),
            (self._noise, 1),
        ]

    def know(self, epochs: Epochs) -> None:
        """Who is controller, and which life of the broker this is, which no answer tells."""
        self._epochs = epochs
        self._learnt["controller_epoch"] = deque([epochs.controller])
        self._learnt["broker_epoch"] = deque([epochs.broker])

    def learn(self, answer: Any) -> None:
        """Take what later requests may say again from a decoded answer."""
        if isinstance(answer, dict):
            for name, value in answer.items():
                if name in ("member_id", "generation_id", "session_id", "topic_id") and value:
                    self._learnt[name].append(value)
                elif isinstance(value, dict | list):
                    self.learn(value)
        elif isinstance(answer, list):
            for value in answer[:3]:
                self.learn(value)

    def next(self) -> Frame:
        """The next frame."""
        while True:
            frame = self._make()
            if is_allowed(frame.data[4:], self._epochs):
                return frame

    def valid(self, key: int, version: int) -> bytes:
        """A valid request of that key and version, header included, without the size prefix."""
        return self._header(key, version) + _joined(self._body(key, version))

    def _make(self) -> Frame:
        random = self._random
        key = random.choice(self._keys)
        first, last = APIS[key].versions
        version = random.randint(first, last)
        damage = random.choices([d for d, _ in self._damages], [weight for _, weight in self._damages])[0]
        body = damage(self._body(key, version))
        header = self._header(key, version)
        if random.random() < 0.03:
            header = self._odd_header(key, version)
        data = header + body
        if random.random() < 0.01:
            size = random.choice((*SIZES, len(data) - 1, len(data) + 1))
            return Frame(struct.pack(">i", size) + data, True, key, version)
        return Frame(struct.pack(">i", len(data)) + data, closes(data), key, version)

    # Valid requests.

    def _header(self, key: int, version: int) -> bytes:
        client = self._random.choice((None, "", "fuzz", "é" * 20))
        return frames.encode_request_header(key, version, self._random.choice((0, 7, -1)), client)

    def _odd_header(self, key: int, version: int) -> bytes:
        random = self._random
        odd_key = random.choice((key, random.randrange(-2, 80), 32767))
        if odd_key in CONTROL_KEYS:
            odd_key = key
        odd_version = random.choice((version, -1, 99, version + 1))
        size = random.choice((-2, -32768, 32767, 3, 0))
        return struct.pack(">hhih", odd_key, odd_version, 7, size) + random.randbytes(random.randrange(5))

    def _body(self, key: int, version: int) -> list[Piece]:
        api = APIS[key]
        self._key, self._array = key, ""
        pieces: list[Piece] = []
        self._write_fields(pieces, api.request, version, flexible=api.is_flexible(version))
        return pieces

    def _write_fields(
        self, pieces: list[Piece], fields: Sequence[Field], version: int, *, flexible: bool
    ) -> None:
        tagged = []
        for field in fields:
            if not field.present_in(version):
                continue
            if field.tag is None:
                self._write_field(pieces, field, version, flexible=flexible)
            elif self._random.random() < 0.3:
                tagged.append(field)
        if flexible:
            pieces.append(Piece("tags", encode_uvarint(len(tagged))))
            for field in sorted(tagged, key=lambda f: f.tag or 0):
                value: list[Piece] = []
                self._write_field(value, field, version, flexible=True)
                body = _joined(value)
                pieces.append(Piece("tags", encode_uvarint(field.tag or 0)))
                pieces.append(Piece("size", encode_uvarint(len(body))))
                pieces += value

    def _write_field(self, pieces: list[Piece], field: Field, version: int, *, flexible: bool) -> None:
        nullable = field.nullable_in(version) or field.type is RECORDS
        if nullable and self._random.random() < 0.1:
            pieces.append(Piece("size", _null(field.type, flexible)))
            return
        if isinstance(field.type, Struct) and nullable:
            pieces.append(Piece("number", b"\x01"))
        self._write_value(pieces, field.type, field.name, version, flexible=flexible, nullable=nullable)

    def _write_value(
        self,
        pieces: list[Piece],
        kind: FieldType,
        name: str,
        version: int,
        *,
        flexible: bool,
        nullable: bool = False,
    ) -> None:
        if isinstance(kind, Struct):
            self._write_fields(pieces, kind.fields, version, flexible=flexible)
        elif isinstance(kind, Array):
            count = self._random.choice(COUNTS_OF.get(name, COUNTS))
            pieces.append(Piece("count", encode_uvarint(count + 1) if flexible else struct.pack(">i", count)))
            outer, self._array = self._array, name
            for _ in range(count):
                self._write_value(pieces, kind.of, name, version, flexible=flexible)
            self._array = outer
        elif kind is UUID:
            pieces.append(Piece("number", self._uuid(name).bytes))
        elif kind in (STRING, BYTES, RECORDS):
            value = self._bytes_of(kind, name)
            if value is None and nullable:
                pieces.append(Piece("size", _null(kind, flexible)))
            else:
                _write_sized(pieces, value or b"", "h" if kind is STRING else "i", flexible=flexible)
        else:
            pieces.append(Piece("number", self._number(name, kind.format)))

    def _bytes_of(self, kind: FieldType, name: str) -> bytes | None:
        random = self._random
        if kind is RECORDS:
            return odd_records(random)
        if kind is BYTES:
            return random.choice((b"", b"\0\0", random.randbytes(random.randrange(40))))
        if self._learnt[name] and random.random() < 0.6:
            return str(random.choice(self._learnt[name])).encode()
        if random.random() < 0.01:
            return random.choice((b"y" * 32_767, b"\xff" * 10_922))
        value = random.choice(self._usual(name, ("", "a", "x" * 300)))
        return None if value is None else str(value).encode()

    def _usual(self, name: str, default: tuple[Any, ...]) -> tuple[Any, ...]:
        for place in ((self._array, name), (self._key, name)):
            if place in USUAL_IN:
                return USUAL_IN[place]
        return USUAL.get(name, default)

    def _uuid(self, name: str) -> Uuid:
        known: list[Uuid] = list(self._learnt[name]) or [Uuid(int=0)]
        if self._key in CONTROL_KEYS and self._random.random() < 0.8:
            known = list(TOLD_IDS)
        return self._random.choice((*known, *known, *TOLD_IDS, Uuid(int=0), UNKNOWN_ID))

    def _number(self, name: str, form: str) -> bytes:
        random = self._random
        if form == "d":
            return struct.pack(">d", random.choice((0.0, 1.5, float("nan"), float("inf"))))
        if self._learnt[name] and random.random() < 0.5:
            value = random.choice(self._learnt[name])
        else:
            value = random.choice(self._usual(name, (0, 1)) if random.random() < 0.85 else NUMBERS)
        size = struct.calcsize(f">{form}")
        return (int(value) % (1 << 8 * size) if form != "?" else int(bool(value))).to_bytes(size, "big")

    # Damage.

    def _lying_piece(self, pieces: list[Piece]) -> bytes:
        """A count, a size or a number says something else than what follows."""
        wanted = self._random.choice(("count", "size", "size", "number", "tags"))
        places = [n for n, piece in enumerate(pieces) if piece.kind == wanted] or range(len(pieces))
        place = self._random.choice(places) if places else 0
        if pieces:
            pieces[place] = Piece(wanted, self._lie(pieces[place]))
        return _joined(pieces)

    def _lie(self, piece: Piece) -> bytes:
        random = self._random
        if piece.kind in ("count", "size", "tags") and len(piece.data) not in (2, 4):
            return random.choice(
                (encode_uvarint(random.choice(SIZES) & 0xFFFFFFFF), random.choice(BAD_VARINTS))
            )
        value = random.choice(SIZES if piece.kind in ("count", "size") else NUMBERS)
        return (value % (1 << 8 * len(piece.data))).to_bytes(len(piece.data), "big")

    def _without_piece(self, pieces: list[Piece]) -> bytes:
        if pieces:
            del pieces[self._random.randrange(len(pieces))]
        return _joined(pieces)

    def _doubled_piece(self, pieces: list[Piece]) -> bytes:
        if pieces:
            first = self._random.randrange(len(pieces))
            again = pieces[first : first + self._random.randrange(1, 6)]
            pieces[first:first] = again * self._random.choice((1, 1, 50))
        return _joined(pieces)

    def _cut(self, pieces: list[Piece]) -> bytes:
        data = _joined(pieces)
        return data[: self._random.randrange(len(data) + 1)]

    def _flipped_bits(self, pieces: list[Piece]) -> bytes:
        data = bytearray(_joined(pieces))
        for _ in range(self._random.randrange(1, 5) if data else 0):
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)
        return bytes(data)

    def _with_tags(self, pieces: list[Piece]) -> bytes:
        """Tagged fields that nobody knows, doubled ones, and ones whose size lies."""
        for place, piece in enumerate(pieces):
            if piece.kind == "tags":
                body = self._random.randbytes(self._random.randrange(4))
                size = encode_uvarint(self._random.choice((len(body), len(body), 500, 0)))
                pieces[place] = Piece("tags", b"\x02" + (b"\x63" + size + body) * 2)
                break
        return _joined(pieces)

    def _longer(self, pieces: list[Piece]) -> bytes:
        return _joined(pieces) + self._random.randbytes(self._random.choice((1, 10, 1000)))

    def _noise(self, pieces: list[Piece]) -> bytes:
        return self._random.randbytes(self._random.choice((0, 1, 8, 60, 3000)))


def _joined(pieces: list[Piece]) -> bytes:
    return b"".join([piece.data for piece in pieces])


def _write_sized(pieces: list[Piece], value: bytes, form: str, *, flexible: bool) -> None:
    size = encode_uvarint(len(value) + 1) if flexible else struct.pack(f">{form}", len(value))
    pieces += (Piece("size", size), Piece("data", value))


def _null(kind: FieldType, flexible: bool) -> bytes:
    if isinstance(kind, Struct):
        return b"\xff"
    if flexible:
        return b"\0"
    return b"\xff\xff" if kind is STRING else b"\xff\xff\xff\xff"
