"""What clients were promised and what was seen, as a history; `findings` says what in it may not be.

A write is done, failed or, as long as nobody said which, unknown: it may be in the log or not, but in one place only. Every
value is published once, or by an idempotent producer, so it has at most one offset, ever. The history ends with the logs of all
replicas: they are held to what was acknowledged and read. Knows nothing of brokers or of how they are simulated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.broker.wire.partitions import PartitionKey


class Kind(StrEnum):
    """What may not be."""

    LOST = "an acknowledged write is lost"
    TWO_OFFSETS = "a value has two offsets"
    TWO_VALUES = "an offset has two values"
    REORDERED = "writes are out of order"
    DUPLICATED = "a write is doubled"
    SKIPPED = "a reader skipped"
    WENT_BACK = "a reader went back"
    ABOVE_WATERMARK = "a reader read above the watermark"
    FAILED_SHOWN = "a failed write shows up"
    COMMIT_WENT_BACK = "a committed offset went back"
    TWO_LEADERS = "an epoch has two leaders"
    REPLICAS_DIFFER = "replicas differ below the watermark"
    UNCOVERED = "a replica in sync lacks what is committed"
    NO_PROGRESS = "there is no progress after healing"


@dataclass(frozen=True, slots=True)
class Violation:
    """One of them, and where."""

    kind: Kind
    story: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.story}"


@dataclass(slots=True)
class Write:
    """Values that were published together. `began` and `ended` count what happened before; `ended` is None while unknown."""

    place: PartitionKey
    producer: str
    values: Sequence[bytes]
    began: int
    ended: int | None = None
    offset: int | None = None
    is_failed: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """What a reader was given from an offset on; `values` is None when there was no such offset."""

    reader: str
    place: PartitionKey
    asked: int
    values: Mapping[int, bytes] | None
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Replica:
    """What a broker's log holds at the end: values by offset, and the bytes of each batch by its base offset."""

    values: Mapping[int, bytes]
    batches: Mapping[int, bytes]
    high_watermark: int


@dataclass
class History:
    """Everything, noted as it happens. `happened` counts by name what a schedule reached."""

    happened: Counter[str] = field(default_factory=Counter)
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    ends: list[tuple[str, PartitionKey, int, int]] = field(default_factory=list)
    committed: dict[PartitionKey, int] = field(default_factory=dict)
    fetched_commits: list[tuple[PartitionKey, int, int]] = field(default_factory=list)
    leaders: dict[tuple[PartitionKey, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    replicas: dict[PartitionKey, dict[int, Replica]] = field(default_factory=lambda: defaultdict(dict))
    stuck: list[str] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)
    idempotent: set[str] = field(default_factory=set)
    """The producers whose writes keep their order also where the outcome is unknown."""
    forsaken: set[bytes] = field(default_factory=set)
    """Values that may be gone, whatever was said of them: more was taken from the cluster than it promises to survive."""
    _step: int = 0

    def begin(self, place: PartitionKey, producer: str, values: Sequence[bytes]) -> Write:
        """A write that is sent now; unknown until it is `done` or `failed`."""
        self._step += 1
        write = Write(place, producer, values, self._step)
        self.writes.append(write)
        return write

    def done(self, write: Write, offset: int | None) -> None:
        """It was acknowledged; without an offset when the broker knows it as a repeated one only."""
        self._step += 1
        self.happened["acknowledged"] += 1
        write.ended, write.offset = self._step, offset

    def failed(self, write: Write) -> None:
        """It was refused, for a reason that leaves nothing in the log."""
        self._step += 1
        self.happened["refused"] += 1
        write.ended, write.is_failed = self._step, True

    def read(
        self,
        reader: str,
        place: PartitionKey,
        asked: int,
        values: Mapping[int, bytes] | None,
        high_watermark: int,
    ) -> None:
        if values is None or values:
            self.reads.append(Read(reader, place, asked, values, high_watermark))

    def end(self, reader: str, place: PartitionKey, floor: int, offset: int) -> None:
        """A reader that knew of everything before `floor` asked for the partition's end."""
        self.ends.append((reader, place, floor, offset))

    def commit(self, place: PartitionKey, offset: int) -> None:
        self.happened["committed"] += 1
        self.committed[place] = max(offset, self.committed.get(place, -1))

    def fetched_commit(self, place: PartitionKey, floor: int, offset: int) -> None:
        """What a group was told; `floor` had been committed before it asked.

        It may be more than that: a commit may have taken effect whose answer was lost, or was an error.
        """
        self.fetched_commits.append((place, floor, offset))
        self.committed[place] = max(offset, self.committed.get(place, -1))

    def forsake(self, values: Iterable[bytes]) -> None:
        self.forsaken.update(values)

    def leads(self, place: PartitionKey, epoch: int, broker: int) -> None:
        self.happened["led"] += 1
        self.leaders[place, epoch].add(broker)


def findings(history: History) -> list[Violation]:
    """All that may not be; the gravest first for a place."""
    found: list[Violation] = []
    writes, reads = _by_place(_kept_writes(history)), _by_place(_kept_reads(history))
    for place, replicas in history.replicas.items():
        log = max(replicas.values(), key=lambda replica: len(replica.values)).values
        found += _of_writes(place, writes[place], log)
        found += _of_order(place, writes[place], log)
        found += _of_sequences(place, writes[place], log, history.idempotent)
        found += _of_offsets(place, writes[place], reads[place], replicas)
        found += _of_replicas(place, replicas)
        found += [f for read in reads[place] if (f := _of_read(read, log)) is not None]
    for reader, place, floor, offset in history.ends:
        if offset < floor:
            story = f"{reader} knew {place} up to {floor}, then it ended at {offset}"
            found.append(Violation(Kind.WENT_BACK, story))
    for place, floor, offset in history.fetched_commits:
        if offset < floor:
            story = f"{place}: {floor} was committed, then {offset} was fetched"
            found.append(Violation(Kind.COMMIT_WENT_BACK, story))
    for (place, epoch), brokers in history.leaders.items():
        if len(brokers) > 1:
            found.append(Violation(Kind.TWO_LEADERS, f"{place}: {sorted(brokers)} led in epoch {epoch}"))
    found += [Violation(Kind.UNCOVERED, story) for story in history.uncovered]
    return found + [Violation(Kind.NO_PROGRESS, story) for story in history.stuck]


def _kept_writes(history: History) -> Iterable[Write]:
    """Nobody knows of forsaken ones whether they are there."""
    for write in history.writes:
        is_forsaken = not write.is_failed and not history.forsaken.isdisjoint(write.values)
        yield replace(write, ended=None, offset=None) if is_forsaken else write


def _kept_reads(history: History) -> Iterable[Read]:
    for read in history.reads:
        if read.values is None or history.forsaken.isdisjoint(read.values.values()):
            yield read


def _by_place(entries: Iterable[Write | Read]) -> defaultdict[PartitionKey, list]:  # type: ignore[type-arg]
    found = defaultdict(list)
    for entry in entries:
        found[entry.place].append(entry)
    return found


def _of_writes(place: PartitionKey, writes: Sequence[Write], log: Mapping[int, bytes]) -> Iterable[Violation]:
    """Acknowledged values are where they were said to be, refused ones nowhere."""
    present = set(log.values())
    for write in writes:
        for index, value in enumerate(write.values):
            if write.is_failed and value in present:
                yield Violation(Kind.FAILED_SHOWN, f"{place}: {value!r} was refused")
            elif write.ended is None or write.is_failed:
                continue
            elif write.offset is None and value not in present:
                yield Violation(Kind.LOST, f"{place}: {value!r} was acknowledged as a repeated one")
            elif write.offset is not None and log.get(write.offset + index) != value:
                at = write.offset + index
                yield Violation(
                    Kind.LOST, f"{place}: {value!r} was acknowledged at {at}, where {log.get(at)!r} is"
                )


def _of_order(place: PartitionKey, writes: Sequence[Write], log: Mapping[int, bytes]) -> Iterable[Violation]:
    """A write that began after another one was acknowledged is behind it; no value is there twice."""
    places: dict[bytes, list[int]] = defaultdict(list)
    for offset, value in log.items():
        places[value].append(offset)
    for value, offsets in places.items():
        if len(offsets) > 1:
            yield Violation(Kind.DUPLICATED, f"{place}: {value!r} is at {sorted(offsets)}")
    by_offset = sorted((write for write in writes if write.offset is not None), key=lambda w: w.offset or 0)
    earliest_end, earliest = float("inf"), b""
    for write in reversed(by_offset):
        if earliest_end < write.began:
            yield Violation(
                Kind.REORDERED,
                f"{place}: {write.values[0]!r} began after {earliest!r} was acknowledged behind it",
            )
        if write.ended is not None and write.ended < earliest_end:
            earliest_end, earliest = write.ended, write.values[0]


def _of_sequences(
    place: PartitionKey, writes: Sequence[Write], log: Mapping[int, bytes], idempotent: set[str]
) -> Iterable[Violation]:
    """The values of an idempotent producer lie in the order in which it published them."""
    of_one = [
        (write.producer, value) for write in writes for value in write.values if write.producer in idempotent
    ]
    turns = {value: (producer, turn) for turn, (producer, value) in enumerate(of_one)}
    last: dict[str, int] = {}
    for offset in sorted(log):
        producer, turn = turns.get(log[offset], ("", 0))
        if turn < last.get(producer, 0):
            story = f"{place}: {log[offset]!r} at {offset} is behind a later one of its producer"
            yield Violation(Kind.REORDERED, story)
        last[producer] = max(turn, last.get(producer, 0))


def _of_offsets(
    place: PartitionKey,
    writes: Sequence[Write],
    reads: Sequence[Read],
    replicas: Mapping[int, Replica],
) -> Iterable[Violation]:
    """Of all that was acknowledged, read or is in a log below its watermark."""
    values: dict[int, bytes] = {}
    offsets: dict[bytes, int] = {}
    known = [
        (write.offset + i, v)
        for write in writes
        if write.offset is not None
        for i, v in enumerate(write.values)
    ]
    known += [pair for read in reads for pair in (read.values or {}).items()]
    for replica in replicas.values():
        known += [pair for pair in replica.values.items() if pair[0] < replica.high_watermark]
    for offset, value in dict.fromkeys(known):
        if values.setdefault(offset, value) != value:
            yield Violation(Kind.TWO_VALUES, f"{place}: {values[offset]!r} and {value!r} at {offset}")
        if offsets.setdefault(value, offset) != offset:
            yield Violation(Kind.TWO_OFFSETS, f"{place}: {value!r} at {offsets[value]} and {offset}")


def _of_replicas(place: PartitionKey, replicas: Mapping[int, Replica]) -> Iterable[Violation]:
    first, *others = sorted(replicas)
    for other in others:
        one, two = replicas[first], replicas[other]
        common = min(one.high_watermark, two.high_watermark)
        for base in sorted({base for base in (*one.batches, *two.batches) if base < common}):
            if one.batches.get(base) != two.batches.get(base):
                yield Violation(
                    Kind.REPLICAS_DIFFER, f"{place}: {first} and {other} at {base}, below {common}"
                )
                break


def _of_read(read: Read, log: Mapping[int, bytes]) -> Violation | None:
    who = f"{read.reader} asked {read.place} for {read.asked}"
    if read.values is None:
        return Violation(Kind.WENT_BACK, f"{who}, which was there before")
    offsets = list(read.values)
    if offsets[0] < read.asked:
        return Violation(Kind.WENT_BACK, f"{who} and was given {offsets[0]}")
    if offsets != list(range(read.asked, read.asked + len(offsets))):
        return Violation(Kind.SKIPPED, f"{who} and was given {offsets}")
    if offsets[-1] >= read.high_watermark:
        return Violation(
            Kind.ABOVE_WATERMARK, f"{who} and was given {offsets[-1]}, with {read.high_watermark}"
        )
    taken_back = next((offset for offset in offsets if offset not in log), None)
    if taken_back is not None:
        return Violation(
            Kind.ABOVE_WATERMARK, f"{who} and was given {taken_back}, which was taken back later"
        )
    return None
