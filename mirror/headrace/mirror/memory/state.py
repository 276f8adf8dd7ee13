"""What a copier must remember beyond the log's end: the records of the topic `headrace.mirror`.

All keys begin with the copy's place, `<target topic>-<partition>`; values are JSON. The last record of a key holds all of
it, so the topic is a compacted one.

    <place>/leader                     a claim: the leader of an epoch is about to read the state, and earlier ones write in
                                       vain from here
    <place>/<topic id>/<epoch>/<claim>  the state, as the leader of that epoch left it, by its claim's offset: a key of its own
                                       for each, so that what a deposed one writes late takes nothing of its successor's place
    <place>/resume, <place>/skip       orders. The command writes them: they name the stop or the rot that they end, so that
                                       one read twice or late ends no other
    <place>/restore                    an order, which the leader that has carried it out removes
    <place>                            the state as earlier versions wrote it, to whichever partition their broker led

Pure values.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

from headrace.mirror.memory import findings
from headrace.mirror.memory.findings import CopyFinding
from headrace.mirror.questions import UNKNOWN

EPOCHS_MAX = 64
RESUME, SKIP, RESTORE, LEADER = "resume", "skip", "restore", "leader"
SEPARATOR = "/"
"""In no topic's name."""
Term = tuple[int, int]
"""A leader epoch of the target, and where in `headrace.mirror` its leader claimed the copy: the later one is the greater."""
NO_TERM: Term = (-1, -1)
"""Of a state that an earlier version wrote."""
NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Offsets that a person gave up; as long as the copy ends at `log_end_offset`, its next batch belongs behind them."""

    log_end_offset: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipOrder:
    """Pass over the rot that `rot` names (see `stop_id`), up to and with `last_offset`."""

    rot: str
    last_offset: int

    def is_of(self, rotten: CopyFinding) -> bool:
        """Whether it names this rot and its offsets; where the rot has no known end, the person chose one."""
        is_end = rotten.last_offset == self.last_offset
        is_chosen = rotten.last_offset == UNKNOWN and self.last_offset >= rotten.first_offset
        return stop_id(rotten) == self.rot and (is_end or is_chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """Cut what was a copy back to `end_offset`, where it has all that its source had, and nothing else; then copy on.

    `target_id` and `source_id` are the topics' ids. The source's batch that ends there begins at `epoch_start`, in its leader
    epoch `epoch`; -1 where they have nothing in common.
    """

    target_id: UUID
    source_id: UUID
    end_offset: int
    epoch: int = UNKNOWN
    epoch_start: int = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`target_id` is the target topic's id: a state of an earlier topic of that name is void. `term` says whose it is: the
    target's leader epoch, and the offset of the claim, since a broker may begin again within an epoch. `untold` are the
    findings that came with it, as long as it is not sure that they are told.

    `epochs` are the source's leader epochs with the offset where each begins in the copy, oldest first: an epoch is
    noted before its first batch is appended, so one at or above the log's end was never copied.
    `resumed_at` is the log's end at the last resume: as long as it ends there, the next batch may lie further on.
    `passed_from` is the first offset below it at which the source's messages are known, and told, to be others.
    `start` is how a copy is to begin whose source was not asked yet (see `Survey`), `begins_at` where it begins: nothing before
    that is ever copied, but for what its first batch holds.
    `different` is where a check found the copy not to be the same as the source, until one finds it to be.
    `rotten` is what the source sends where the copy goes on, and is refused; `skipped` is the last such that was given up.
    """

    target_id: UUID
    source_id: UUID = NO_ID
    source_bootstrap: str = ""
    epochs: tuple[tuple[int, int], ...] = ()
    stopped: CopyFinding | None = None
    resumed_at: int | None = None
    passed_from: int | None = None
    rotten: CopyFinding | None = None
    different: CopyFinding | None = None
    skipped: Skip | None = None
    start: int | None = None
    begins_at: int | None = None
    term: Term = NO_TERM
    untold: tuple[CopyFinding, ...] = ()

    def next_offset(self, log_end_offset: int) -> int:
        """Where the source's next batch belongs in a copy that ends there."""
        skipped = self.skipped
        is_there = skipped is not None and skipped.log_end_offset == log_end_offset
        following = skipped.last_offset + 1 if skipped is not None and is_there else log_end_offset
        return max(following, self.begins_at or 0)

    def epoch_before(self, offset: int) -> int | None:
        """The source's leader epoch of the batch that ends at `offset`, None when that is not known."""
        return next((epoch for epoch, start in reversed(self.epochs) if start < offset), None)

    def epoch_end(self, epoch: int, end: int) -> int:
        """Where batches of an epoch above `epoch` begin in the copy, which ends at `end`."""
        return min((start for known, start in self.epochs if known > epoch), default=end)

    def with_epoch(self, epoch: int, start_offset: int) -> State:
        """Batches from `start_offset` on are of `epoch`."""
        kept = tuple(entry for entry in self.epochs if entry[1] < start_offset)
        return replace(self, epochs=(*kept, (epoch, start_offset))[-EPOCHS_MAX:])

    def restored(self, order: RestoreOrder) -> State:
        """The state of a copy that was cut as ordered: it knows where its end is the source's, and nothing else."""
        epochs = () if order.epoch < 0 else ((order.epoch, order.epoch_start),)
        return State(
            target_id=self.target_id,
            source_id=order.source_id,
            source_bootstrap=self.source_bootstrap,
            epochs=epochs,
            term=self.term,
        )

    def encode(self) -> bytes:
        fields: dict[str, Any] = {
            "target_id": str(self.target_id),
            "source_id": str(self.source_id),
            "source_bootstrap": self.source_bootstrap,
            "epochs": self.epochs,
            "stopped": self.stopped.as_dict() if self.stopped else None,
            "resumed_at": self.resumed_at,
            "passed_from": self.passed_from,
            "rotten": self.rotten.as_dict() if self.rotten else None,
            "different": self.different.as_dict() if self.different else None,
            "skipped": asdict(self.skipped) if self.skipped else None,
            "start": self.start,
            "begins_at": self.begins_at,
            "term": self.term,
            "untold": [finding.as_dict() for finding in self.untold],
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def decode(value: bytes) -> State:
    """Raises ValueError for what is no state."""
    fields = json.loads(value)
    try:
        return State(
            target_id=UUID(fields["target_id"]),
            source_id=UUID(fields["source_id"]),
            source_bootstrap=str(fields["source_bootstrap"]),
            epochs=tuple((int(epoch), int(start)) for epoch, start in fields["epochs"]),
            stopped=findings.from_dict(fields["stopped"]) if fields["stopped"] else None,
            resumed_at=_offset_or_none(fields["resumed_at"]),
            passed_from=_offset_or_none(fields.get("passed_from")),
            rotten=findings.from_dict(fields["rotten"]) if fields.get("rotten") else None,
            different=findings.from_dict(fields["different"]) if fields.get("different") else None,
            skipped=_skip(fields["skipped"]) if fields.get("skipped") else None,
            start=_offset_or_none(fields.get("start")),
            begins_at=_offset_or_none(fields.get("begins_at")),
            term=_term(fields["term"]) if "term" in fields else NO_TERM,
            untold=tuple(findings.from_dict(found) for found in fields.get("untold", ())),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no state of a mirror partition: {value[:200]!r}") from error


def _offset_or_none(value: Any) -> int | None:
    return None if value is None else int(value)


def _term(fields: Any) -> Term:
    leader_epoch, claim = fields
    return int(leader_epoch), int(claim)


def _skip(fields: Any) -> Skip:
    return Skip(
        log_end_offset=int(fields["log_end_offset"]),
        first_offset=int(fields["first_offset"]),
        last_offset=int(fields["last_offset"]),
    )


def place_of(topic: str, partition: int) -> bytes:
    """What all keys about a copy begin with, and the whole key of its findings and arrivals."""
    return f"{topic}-{partition}".encode()


def topic_of(place: str) -> str:
    """The topic of `<topic>-<partition>`."""
    return place.rpartition("-")[0]


def state_key(place: bytes, target_id: UUID, term: Term) -> bytes:
    """The key of a state that is written in this term."""
    return place + SEPARATOR.join(("", str(target_id), *map(str, term))).encode()


def key_of(place: bytes, what: str) -> bytes:
    """The key of a claim (`LEADER`) or an order (`RESUME`, `SKIP`)."""
    return place + f"{SEPARATOR}{what}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The leader of this epoch is about to read the state: from here on earlier ones write in vain."""

    target_id: UUID
    leader_epoch: int

    def encode(self) -> bytes:
        return json.dumps({"target_id": str(self.target_id), "leader_epoch": self.leader_epoch}).encode()


def decode_claim(value: bytes) -> Claim:
    """Raises ValueError for what is no claim."""
    try:
        fields = json.loads(value)
        return Claim(target_id=UUID(fields["target_id"]), leader_epoch=int(fields["leader_epoch"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no claim: {value[:200]!r}") from error


def encode_resume(stopped: CopyFinding) -> bytes:
    """The value of a resume record."""
    return json.dumps({"stop": stop_id(stopped)}).encode()


def decode_resume(value: bytes) -> str:
    """The stop that a resume record ends; raises ValueError."""
    try:
        return str(json.loads(value)["stop"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"no resume: {value[:200]!r}") from error


def encode_skip(order: SkipOrder) -> bytes:
    """The value of a skip record."""
    return json.dumps(asdict(order)).encode()


def decode_skip(value: bytes) -> SkipOrder:
    """Raises ValueError for what is no skip."""
    try:
        fields = json.loads(value)
        return SkipOrder(rot=str(fields["rot"]), last_offset=int(fields["last_offset"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"no skip: {value[:200]!r}") from error


def encode_restore(order: RestoreOrder) -> bytes:
    """The value of a restore record."""
    ids = {"target_id": str(order.target_id), "source_id": str(order.source_id)}
    return json.dumps(asdict(order) | ids).encode()


def decode_restore(value: bytes) -> RestoreOrder:
    """Raises ValueError for what is no order to restore."""
    try:
        fields = json.loads(value)
        return RestoreOrder(
            target_id=UUID(fields["target_id"]),
            source_id=UUID(fields["source_id"]),
            end_offset=int(fields["end_offset"]),
            epoch=int(fields["epoch"]),
            epoch_start=int(fields["epoch_start"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no order to restore: {value[:200]!r}") from error


def stop_id(found: CopyFinding) -> str:
    """One stop or rot, told from another with the same cause by its time."""
    return f"{found.id}:{found.detected_ms}"
