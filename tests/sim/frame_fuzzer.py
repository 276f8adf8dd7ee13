"""Request frames as no client writes them, from a seed: every API key and version, valid and damaged in every way.

A frame begins as a valid request, made from the tables of `wire.api` as a row of pieces (a number, a count, a size, the
bytes behind it), so that damage hits what matters: counts and sizes that lie, varints without an end, fields cut or
doubled, a body of another version, batches whose header says what their records do not. `learn` takes ids from answers,
so that requests get past the first check. What a client with such rights may do to any broker is left out (`is_allowed`):
requests of a controller, large topics, topics of other names. The same seed gives the same frames.
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
    MalformedError,
    Struct,
)
from headrace.broker.wire.varint import encode_uvarint

TOPICS = ("fuzz-0", "fuzz-1", "fuzz-compacted", "fuzz-gzip")
NEW_TOPICS = ("fuzz-new-0", "fuzz-new-1")
GROUPS = ("fuzz-group-0", "fuzz-group-1", "fuzz-group-2")
UNKNOWN_ID = Uuid(int=7)
NUMBERS = (
    0,
    1,
    -1,
    2,
    5,
    127,
    -128,
    255,
    32767,
    -32768,
    65536,
    (1 << 31) - 1,
    -(1 << 31),
    (1 << 63) - 1,
    -(1 << 63),
)
SIZES = (0, 1, -1, -2, 127, 128, 32767, 0x7FFFFFFF, -0x80000000, 1 << 20)
BAD_VARINTS = (
    b"\xff" * 5,
    b"\xff" * 10,
    b"\x80" * 6,
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x00",
)
PARTITIONS_COUNT_MAX = 4
CONTROL_KEYS = (4, 5, 6, 7)
LEARNT_COUNT_MAX = 16
# What a field of that name mostly holds; other numbers are mostly 0 or 1.
USUAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("name", "topic", "topic_name", "topics"), (*TOPICS, "nowhere", "", "bad/name")),
    **dict.fromkeys(("group_id", "groups", "groups_names", "key", "coordinator_keys"), (*GROUPS, "")),
    "topic_names": (*NEW_TOPICS, "nowhere", ""),
    "resource_name": (*TOPICS, "1", "", "7"),
    "member_id": ("", "nobody"),
    "group_instance_id": (None, None, "instance"),
    "protocol_type": ("consumer", "consumer", "connect", ""),
    "configuration_keys": ("retention.ms", "cleanup.policy", "no.such.key"),
    "transactional_id": (None, None, None, "", "t"),
    "acks": (-1, 0, 1, 1, 7),
    "max_wait_ms": (0, 0, 1),
    "min_bytes": (0, 1),
    **dict.fromkeys(("max_bytes", "partition_max_bytes"), (1 << 20, 1000, 1)),
    "timeout_ms": (0, 1, 100),
    "session_timeout_ms": (6000, 10_000),
    "rebalance_timeout_ms": (0, 100, 10_000),
    "timestamp": (-1, -2, -3, -4, 0, 1_700_000_000_000),
    "replica_id": (-1, -1, -1, 1, 2),
    **dict.fromkeys(("current_leader_epoch", "last_fetched_epoch", "leader_epoch"), (-1, 0, 1)),
    **dict.fromkeys(("generation_id", "generation_id_or_member_epoch"), (-1, 1, 2)),
    "session_id": (0, 0, 1),
    "session_epoch": (0, -1, 1),
    "resource_type": (2, 2, 4, 8),
    "config_operation": (0, 1, 2, 3, 4),
    "num_partitions": (1, -1, 3),
    "count": (1, 2, 4),
    "replication_factor": (1, -1, 2),
    "controller_epoch": (0, -1),
    "broker_id": (2, 9),
    "validate_only": (True, True, False),
    "states_filter": ("Stable", "Empty", "nonsense"),
    **dict.fromkeys(("replicas", "new_isr"), (1, 1, 1, 2, 9, -1)),
    "election_type": (0, 1, 2),
    "feature": ("metadata.version", "kraft.version", "no.such.feature", ""),
    "value": ("1000", "compact", None, "x"),
}
# The same in the elements of an array of that name, or in requests of that key, in this order of precedence.
USUAL_IN: dict[tuple[str | int, str], tuple[Any, ...]] = {
    ("configs", "name"): ("retention.ms", "cleanup.policy", "no.such.key", "compression.type"),
    (19, "name"): (*NEW_TOPICS, *NEW_TOPICS, "", "bad/name"),
    (19, "validate_only"): (True, False, False),
    (20, "name"): (*NEW_TOPICS, None),
    ("new_isr_with_epochs", "broker_id"): (1, 1, 1, 2, 9, -1),
    (56, "broker_id"): (1, 1, 1, 2, 9),
    (67, "broker_id"): (1, 1, 2, 9),
}
COUNTS = (0, 1, 1, 1, 2, 3)
COUNTS_OF: dict[str, tuple[int, ...]] = {"assignments": (0, 0, 0, 0, 1, 2), "configs": (0, 0, 1, 1, 2)}


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
        # Of those that make and delete topics two right ones have to meet: they come twice as often.
        self._keys = [*HANDLERS, 19, 20] if keys is None else list(keys)
        self._learnt: dict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=LEARNT_COUNT_MAX))
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

    def know(self, name: str, value: Any) -> None:
        """Fields of that name often hold that value, which no answer tells."""
        self._learnt[name].append(value)

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
            if is_allowed(frame):
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
        return self._random.choice((*known, *known, Uuid(int=0), UNKNOWN_ID))

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


def closes(data: bytes) -> bool:
    """Whether a broker closes the connection for this frame, given without its size, because it is no request."""
    try:
        header = frames.read_request_header(data)
        handler = HANDLERS.get(header.key)
        if handler is None or not handler.version_min <= header.version <= handler.version_max:
            return header.key != 18
        APIS[header.key].decode_request(header.version, data, header.body_offset)
    except MalformedError:
        return True
    return False


def is_allowed(frame: Frame) -> bool:
    """False for what a client with such rights may do to any broker (see the module's text)."""
    data = memoryview(frame.data)[4:]
    try:
        header = frames.read_request_header(data)
        request = APIS[header.key].decode_request(header.version, data, header.body_offset)
    except (MalformedError, KeyError, ValueError):
        return True
    except Exception:
        return header.key not in CONTROL_KEYS
    if header.key in (4, 5, 6):
        return bool(request["controller_epoch"] < 1)
    if header.key == 7:
        return bool(request["broker_id"] > 1)
    if header.key == 19:
        return request.get("validate_only", False) or all(map(_is_small, request["topics"]))
    if header.key == 20:
        return not any(map(_is_kept, [*request["topics"], *({"name": n} for n in request["topic_names"])]))
    if header.key == 37:
        return all(topic["count"] <= PARTITIONS_COUNT_MAX for topic in request["topics"])
    return True


def _is_small(topic: dict[str, Any]) -> bool:
    return (
        topic["name"] in NEW_TOPICS
        and topic["num_partitions"] <= PARTITIONS_COUNT_MAX
        and len(topic["assignments"]) <= PARTITIONS_COUNT_MAX
    )


def _is_kept(topic: dict[str, Any]) -> bool:
    """Whether deleting it would take from others what they work with: a name or an id that an answer told."""
    return topic["name"] in TOPICS or topic.get("topic_id", UNKNOWN_ID) not in (Uuid(int=0), UNKNOWN_ID)


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
