"""Which offsets of a copy `headrace mirror verify` compares with its source's, and what it says of them. Pure.

What both logs have is compared, up to the high watermarks of the moment when the command began. What lies outside is told:
not copied yet or never, deleted by retention, passed over as findings say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.equality.comparison import Comparison, Offsets, Side
from headrace.mirror.equality.difference import Difference
from headrace.mirror.memory.findings import CopyFinding, Kind

Row = dict[str, Any]
PassedOver = Mapping[tuple[str, str, int], Sequence[Offsets]]
"""By source, the source's topic and partition."""


class Result(StrEnum):
    """What came of one partition."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOTHING = "nothing to compare"
    NOT_COMPARED = "not compared"


IN_ORDER = frozenset({Result.EQUAL, Result.NOTHING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Extents:
    """Where the two logs begin and end; `next_offset` is where the source's next batch belongs in the copy.

    Nothing before `since` is wanted.
    """

    source_start: int
    source_end: int
    copy_start: int
    copy_end: int
    next_offset: int
    since: int = 0

    @property
    def first(self) -> int:
        """The first offset to compare."""
        return max(self.source_start, self.copy_start, self.since)

    @property
    def end(self) -> int:
        """The one behind the last to compare."""
        return max(self.first, min(self.source_end, self.copy_end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One partition of a copy; without `extents` nothing is known of it but `reason`."""

    place: PartitionKey
    source: str
    result: Result
    extents: Extents | None = None
    compared: Comparison | None = None
    reason: str = ""

    @property
    def difference(self) -> Difference | None:
        return None if self.compared is None else self.compared.difference

    def as_row(self) -> Row:
        """As JSON types; what nobody knows is None."""
        extents, compared = self.extents, self.compared
        row: Row = {
            "topic": self.place[0],
            "partition": self.place[1],
            "source": self.source,
            "result": str(self.result),
            "first_offset": None if extents is None else extents.first,
            "end_offset": None if compared is None else compared.position,
            "bytes": 0 if compared is None else compared.bytes_compared,
            "behind": None if extents is None else max(0, extents.source_end - extents.next_offset),
            "beyond_source": None if extents is None else max(0, extents.copy_end - extents.source_end),
            "deleted_at_source": None
            if extents is None
            else _above(extents.source_start, extents.copy_start),
            "before_copy": None if extents is None else _above(extents.copy_start, extents.source_start),
            "deleted_meanwhile": 0 if compared is None else compared.deleted_count,
            "passed_over": 0 if compared is None else compared.passed_count,
            "only_at_source": 0 if compared is None else compared.only_at[Side.SOURCE],
            "only_at_copy": 0 if compared is None else compared.only_at[Side.COPY],
            "difference": None if self.difference is None else asdict(self.difference),
            "reason": self.reason or None,
        }
        return row


def _above(start: int, other: int) -> int:
    return max(0, start - other)


def verdict(place: PartitionKey, source: str, extents: Extents, compared: Comparison) -> Verdict:
    """What a comparison that is over says."""
    result = Result.EQUAL if compared.difference is None else Result.DIFFERENT
    if extents.first >= extents.end:
        result = Result.NOTHING
    return Verdict(place=place, source=source, result=result, extents=extents, compared=compared)


def passed_over(findings: Iterable[CopyFinding]) -> PassedOver:
    """The offsets that copies passed over."""
    found: dict[tuple[str, str, int], list[Offsets]] = {}
    for finding in findings:
        if finding.kind is Kind.LOSS and finding.last_offset >= finding.first_offset >= 0:
            place = finding.datacenter, finding.topic, finding.partition
            found.setdefault(place, []).append((finding.first_offset, finding.last_offset))
    return found


OUTSIDE = {
    "behind": "not copied yet",
    "beyond_source": "beyond the source's end",
    "deleted_at_source": "deleted at the source",
    "before_copy": "before the copy begins",
    "deleted_meanwhile": "deleted before they were compared",
    "passed_over": "passed over by findings",
    "only_at_source": "compacted away in the copy",
    "only_at_copy": "compacted away at the source",
}
"""What is told of offsets that were not compared, by the row's field."""


def outside(row: Row) -> str:
    """What was not compared, in words."""
    return ", ".join(f"{row[field]:,} {words}" for field, words in OUTSIDE.items() if row[field])


def summary(rows: Sequence[Row]) -> str:
    """One sentence about all of them."""
    counts = [(result, sum(row["result"] == result for row in rows)) for result in Result]
    parts = [f"{count:,} {result}" for result, count in counts if count]
    offsets = sum(row["end_offset"] - row["first_offset"] for row in rows if row["end_offset"] is not None)
    size = sum(row["bytes"] for row in rows)
    return f"Partitions: {', '.join(parts) or 'none'}; {offsets:,} offsets and {size:,} bytes were compared."
