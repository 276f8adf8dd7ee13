"""Findings that a person has accepted: who, when and why; the records of `headrace.acceptances`, and what they cover.

Owns which findings count as accepted. A finding is known by where it is (kind, hop, stream, partition) and by its sequences, or,
where these are not known, its offsets. Invariants: an acceptance covers what lies within its range and nothing more, so the parts
into which settling divides a finding stay accepted, and one that has grown is open again; of offsets it covers nothing that was
found after it; the last record of an id holds, and none is ever removed by another's. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

from headrace.audit.outcome import Finding, Loss, Outcome, Topic, Verdict, verdict_of, verdicts

ACCEPTANCES_TOPIC: Final = "headrace.acceptances"
ID_LENGTH: Final = 12
BY_LENGTH_MAX: Final = 100
WHY_LENGTH_MAX: Final = 1000
ACCEPTANCES_MAX: Final = 10_000
"""That are known at a time; further ones are refused."""
_NAMES: Final = ("id", "kind", "hop", "datacenter", "topic", "producer", "by", "reason")
_NUMBERS: Final = ("partition", "first", "last", "count", "window_start", "at_ms")
_LOST: Final = "loss"
_DOUBLED: Final = "duplicate"


class Where(NamedTuple):
    """Where a finding is; the partition only where its sequences are not known, else -1."""

    kind: str
    hop: str
    datacenter: str
    topic: str
    producer: str
    partition: int
    warehouse: str = ""
    """The further one that it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """One record; `first` and `last` are sequences where the partition is -1, else offsets."""

    id: str
    kind: str
    hop: str
    datacenter: str
    topic: str
    producer: str
    partition: int
    first: int
    last: int
    count: int
    window_start: int
    by: str
    reason: str
    at_ms: int
    is_taken_back: bool = False
    warehouse: str = ""

    @property
    def where(self) -> Where:
        place = (self.datacenter, self.topic, self.producer)
        return Where(self.kind, self.hop, *place, self.partition, self.warehouse)


def where_of(item: Finding) -> Where:
    partition = -1 if item.first_sequence >= 0 else item.partition
    return Where(item.kind, item.hop, *item.stream, partition, item.warehouse)


def range_of(item: Finding) -> tuple[int, int]:
    """Return the first and last sequence, or offset, of a finding."""
    if item.first_sequence >= 0:
        return item.first_sequence, item.last_sequence
    return item.first_offset, item.last_offset


def id_of(item: Finding) -> str:
    """Return the name by which a person accepts a finding; it is made of what was found alone."""
    when = () if item.first_sequence >= 0 else (item.window_start,)
    *place, warehouse = where_of(item)
    text = json.dumps([*place, *range_of(item), *when, *([warehouse] if warehouse else [])])
    return sha256(text.encode()).hexdigest()[:ID_LENGTH]


def accepted(item: Finding, *, by: str, reason: str, at_ms: int) -> Acceptance:
    """Return the record that accepts a finding.

    Raises:
        ValueError: a name or reason is missing or too long; the text is a sentence.
    """
    first, last = range_of(item)
    return Acceptance(
        id=id_of(item),
        **where_of(item)._asdict(),
        first=first,
        last=last,
        count=item.count,
        window_start=item.window_start,
        by=_text(by, "who accepts it", BY_LENGTH_MAX),
        reason=_text(reason, "why", WHY_LENGTH_MAX),
        at_ms=at_ms,
    )


def taken_back(item: Acceptance, *, by: str, reason: str, at_ms: int) -> Acceptance:
    """Return the record that opens what an acceptance covers again; raises ValueError as `accepted` does."""
    by = _text(by, "who opens it again", BY_LENGTH_MAX)
    reason = _text(reason, "why", WHY_LENGTH_MAX)
    return replace(item, by=by, reason=reason, at_ms=at_ms, is_taken_back=True)


def _text(value: str, what: str, length_max: int) -> str:
    value = " ".join(value.split())
    if not value:
        raise ValueError(f"say {what}")
    if len(value) > length_max:
        raise ValueError(f"say {what} in at most {length_max} characters")
    return value


def as_fields(item: Acceptance) -> dict[str, Any]:
    return asdict(item)


def encode(item: Acceptance) -> bytes:
    return json.dumps(as_fields(item), separators=(",", ":")).encode()


def from_fields(fields: Any) -> Acceptance:
    """Undo `as_fields`; raises ValueError for what is no acceptance."""
    try:
        texts = {name: str(fields[name])[:WHY_LENGTH_MAX] for name in _NAMES}
        numbers = {name: int(fields[name]) for name in _NUMBERS}
        texts["warehouse"] = str(fields.get("warehouse", ""))[:WHY_LENGTH_MAX]
        return Acceptance(**texts, **numbers, is_taken_back=bool(fields["is_taken_back"]))  # type: ignore[arg-type]
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"no acceptance: {error!r}") from error


def decode(value: bytes | None) -> Acceptance:
    """Return the acceptance of a message's value; raises ValueError for what is none."""
    return from_fields(json.loads(value or b"null"))


@dataclass(slots=True)
class Acceptances:
    """The last record of each id, those that were taken back included; those of all warehouses."""

    warehouse: str = ""
    """The further warehouse to whose ledger these belong."""
    known: dict[str, Acceptance] = field(default_factory=dict)
    _by_where: dict[Where, list[Acceptance]] | None = None

    def take(self, item: Acceptance) -> None:
        """Take a record, later than those before. Raises ValueError when there are too many."""
        if item.id not in self.known and len(self.known) >= ACCEPTANCES_MAX:
            raise ValueError(f"more than {ACCEPTANCES_MAX} findings are accepted")
        self.known[item.id] = item
        self._by_where = None

    def in_force(self) -> Iterator[Acceptance]:
        """Yield those that nobody took back."""
        return (item for item in [*self.known.values()] if not item.is_taken_back)

    def of(self, item: Finding) -> Acceptance | None:
        """Return what covers a finding, the first one where several do together; None: it is open."""
        found = self._index().get(where_of(item), [])
        if item.first_sequence < 0:
            found = [each for each in found if item.window_start <= max(each.at_ms, each.window_start)]
        return _first_covering(found, *range_of(item), item.count)

    def covers(self, topic: Topic, loss: Loss) -> bool:
        """Whether a loss is accepted."""
        warehouse = self.warehouse if loss.hop == "offline_to_warehouse" else ""
        found = self._index().get(Where(_LOST, loss.hop, *topic, loss.producer, -1, warehouse), [])
        return _first_covering(found, loss.first, loss.last, loss.copies) is not None

    def within(self, item: Finding) -> list[Acceptance]:
        """Return those in force that an acceptance of this finding makes needless."""
        first, last = range_of(item)
        found = self._index().get(where_of(item), [])
        return [each for each in found if first <= each.first and each.last <= last]

    def sums(self, warehouse: str = "") -> dict[Topic, tuple[int, int]]:
        """Return how many lost and doubled events are accepted, by topic, on the way to the first warehouse, or on the hop to a
        further one; what is known by offsets alone may be no event.
        """
        found: dict[Topic, tuple[int, int]] = {}
        for item in self.in_force():
            if (
                item.partition < 0
                and item.warehouse == warehouse
                and item.hop != "live_to_aggregate"
                and item.kind in (_LOST, _DOUBLED)
            ):
                lost, doubled = found.get((item.datacenter, item.topic), (0, 0))
                is_lost = item.kind == _LOST
                found[item.datacenter, item.topic] = (
                    lost + item.count * is_lost,
                    doubled + item.count * (not is_lost),
                )
        return found

    def _index(self) -> dict[Where, list[Acceptance]]:
        index = self._by_where
        if index is None:
            index = {}
            for item in sorted(self.in_force(), key=lambda each: each.first):
                index.setdefault(item.where, []).append(item)
            self._by_where = index
        return index


def _first_covering(found: Iterable[Acceptance], first: int, last: int, count: int) -> Acceptance | None:
    """Return the first of those that cover a range with so many copies together; None: they do not."""
    covering = _covering(found, first, last)
    return covering[0] if covering and count <= sum(each.count for each in covering) else None


def _covering(found: Iterable[Acceptance], first: int, last: int) -> list[Acceptance]:
    """Return those that lie over a range without a gap; none where there is one. They come in order."""
    taken: list[Acceptance] = []
    following = first
    for item in found:
        if item.last < first:
            continue
        if item.first > following:
            break
        taken.append(item)
        following = max(following, item.last + 1)
        if following > last:
            return taken
    return []


def to_accept(
    ids: Iterable[str], findings: Iterable[Finding], known: Acceptances, by: str, reason: str, at_ms: int
) -> list[Acceptance]:
    """Return the records that accept findings, and take back those that these make needless.

    Raises:
        ValueError: one is not known, or is accepted already; the text is a sentence.
    """
    by_id = {id_of(item): item for item in findings}
    items: list[Acceptance] = []
    for name in ids:
        if name not in by_id:
            raise ValueError(
                f"no finding has the id {name}; the report and its page show those that there are"
            )
        if (covered := known.of(by_id[name])) is not None:
            raise ValueError(f"{name} is accepted already, by {covered.by}: {covered.reason}")
        items.append(accepted(by_id[name], by=by, reason=reason, at_ms=at_ms))
        items += [
            taken_back(item, by=by, reason=f"it is part of {name}", at_ms=at_ms)
            for item in known.within(by_id[name])
            if item.id != name
        ]
    return items


def to_reopen(ids: Iterable[str], known: Acceptances, by: str, reason: str, at_ms: int) -> list[Acceptance]:
    """Return the records that take acceptances back; raises ValueError, in a sentence, where one is not in force."""
    in_force = {item.id: item for item in known.in_force()}
    missing = [name for name in ids if name not in in_force]
    if missing:
        raise ValueError(
            f"nothing is accepted by the id {missing[0]}; the report shows what is, under `accepted`"
        )
    return [taken_back(in_force[name], by=by, reason=reason, at_ms=at_ms) for name in ids]


class AcceptedSums(NamedTuple):
    """What of an outcome is accepted; `lost` and `duplicated` are events as its totals count them."""

    findings: int
    lost: int
    duplicated: int


def accepted_sums(outcome: Outcome, acceptances: Acceptances, warehouse: str = "") -> AcceptedSums:
    """Return the sums of all findings, with the events that are in the outcome's own numbers, or those of a further warehouse."""
    items = [
        item
        for item in outcome.findings
        if warehouse in ("", item.warehouse) and acceptances.of(item) is not None
    ]
    events = [
        item
        for item in items
        if item.warehouse == warehouse
        and (
            (item.first_sequence >= 0 and item.hop != "live_to_aggregate")
            or item.stream[:2] in outcome.batches
        )
    ]
    lost, doubled = (sum(item.count for item in events if item.kind == kind) for kind in (_LOST, _DOUBLED))
    return AcceptedSums(len(items), lost, doubled)


def open_verdict(outcome: Outcome, acceptances: Acceptances) -> Verdict:
    """Return the verdict of all but what is accepted."""
    findings = [item for item in outcome.findings if acceptances.of(item) is None]
    return verdict_of(item.verdict for item in verdicts(replace(outcome, findings=findings)))
