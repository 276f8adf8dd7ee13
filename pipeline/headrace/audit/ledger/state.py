"""The ledger as a file: what `headrace audit watch` has read and counted, so that a report reads on from there.

One JSON file, replaced as a whole, so it is always one state of the ledger. It is a cache: without it, or when it is of
another version, bound or cluster, the ledger is built again from the topics and tables. What was promised is no cache:
`promises` keeps it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from headrace.audit import acceptances, records
from headrace.audit.clocks import Hosts, Skews
from headrace.audit.histogram import Histogram
from headrace.audit.latency import Latencies, SourcePartition, Spans
from headrace.audit.ledger import aggregates, batch_ledger, promises
from headrace.audit.ledger.accounts import Accounts, OpenAccount
from headrace.audit.ledger.coverage import Coverage, Link, Uncounted
from headrace.audit.ledger.facts import as_fields, from_fields
from headrace.audit.ledger.garbage import nothing_collected
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.ledger.passings import Passed
from headrace.audit.ledger.reach import Reach
from headrace.audit.parcels import Counter, Parcel
from headrace.audit.period import Period
from headrace.audit.recent import RecentLatencies
from headrace.audit.records import Barrier
from headrace.audit.windows import EMPTY, Depth, ProducerName, Stream, depth_from_json
from headrace.broker.wire.partitions import TopicPartition

VERSION: Final = 6
READABLE: Final = (4, 5, VERSION)
"""Version 4 knew nothing settled: all of it is open at first. Up to version 5 records were texts."""
FILE: Final = "ledger.json"


class Saver:
    """Saves a ledger again and again; ranges that are held, most of what is saved, are put into words once."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Link, str]] = {}
        """By the identity of a range, which is kept here so that no other has it."""

    def save(self, ledger: Ledger, directory: Path) -> None:
        """Replace the ledger of a folder, which is made when missing."""
        directory.mkdir(parents=True, exist_ok=True)
        temporary = directory / f"{FILE}.{os.getpid()}.new"
        with nothing_collected(), temporary.open("w", encoding="utf-8") as file:
            file.write(f'{{"coverage":{self._coverage(ledger.reach.coverage)}')
            for name, value in _sections(ledger).items():
                # At once each: what `json.dump` writes in pieces it also makes in pieces, in Python.
                file.write(f',"{name}":{_text(value)}')
            file.write("}")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(directory / FILE)

    def _coverage(self, known: Mapping[Counter, Coverage]) -> str:
        before, self._texts = self._texts, {}
        return f"[{','.join(self._of_counter(key, item, before) for key, item in known.items())}]"

    def _of_counter(self, key: Counter, item: Coverage, before: Mapping[int, tuple[Link, str]]) -> str:
        held = []
        for link in item.held:
            found = before.get(id(link)) or (link, _text(records.as_fields(link)))
            self._texts[id(link)] = found
            held.append(found[1])
        begin, end = _around_held(item)
        around = [_text([*_counter(key), begin])[:-2], _text(end)[1:-1]]
        return f"{around[0]},[{','.join(held)}],{around[1]}]]"


def load(directory: Path | None, late_after_ms: int, warehouse: str = "", scope: str = "") -> Ledger:
    """Return the saved ledger, or an empty one when there is none of this version, bound, warehouse and scope, with what was
    promised.
    """
    ledger = Ledger(late_after_ms, warehouse, scope)
    if directory is None:
        return ledger
    try:
        with nothing_collected():
            fields = json.loads((directory / FILE).read_text(encoding="utf-8"))
            if fields["version"] in READABLE and _settings(fields) == (late_after_ms, warehouse, scope):
                ledger = from_json(fields)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    ledger.promised = promises.load(directory)
    return ledger


def _settings(fields: Any) -> tuple[int, str, str]:
    """Return what a ledger was made for; a name or scope of none is that of the first warehouse."""
    return fields["late_after_ms"], fields.get("warehouse", ""), fields.get("scope", "")


def as_json(ledger: Ledger) -> dict[str, Any]:
    """Return the whole ledger as JSON types; rows that wait are named by their files, which are read again."""
    coverage = [[*_counter(key), _coverage(value)] for key, value in ledger.reach.coverage.items()]
    return {**_sections(ledger), "coverage": coverage}


def _sections(ledger: Ledger) -> dict[str, Any]:
    """The same without the counted ranges."""
    return {
        "version": VERSION,
        "late_after_ms": ledger.late_after_ms,
        "warehouse": ledger.warehouse,
        "scope": ledger.scope,
        "read": _pairs(ledger.read),
        "counted": sorted(ledger.counted),
        "compacted": sorted(ledger.compacted),
        "removed": [[*_counter(key), value] for key, value in ledger.reach.removed.items() if value],
        "settled": [
            [tier, *stream, value.as_json()] for (tier, stream), value in ledger.copies.folded.items()
        ],
        "facts": as_fields(ledger.facts),
        "aggregates": aggregates.as_fields(ledger.aggregates),
        "batches": batch_ledger.as_fields(ledger.batches),
        "modes": _pairs(ledger.modes.changes),
        "recounted": _pairs(ledger.recounted),
        "rebuilt": _pairs(ledger.rebuilt),
        "unjudged": [
            [*tiers, *stream, value.as_json()] for (*tiers, stream), value in ledger.copies.unjudged.items()
        ],
        "accounts": [[*stream, _accounts(value)] for stream, value in ledger.accounts.items()],
        "barriers": [records.as_fields(item) for item in ledger.barriers.open],
        "passed": [[*key, list(value.items())] for key, value in ledger.barriers.passed.items()],
        "whole_at": _pairs(ledger.reach.whole_at),
        "standstills": [[*_counter(key), value] for key, value in ledger.standstills.items()],
        "skipped": [
            [*_counter(key), [[reason, *period] for reason, period in skips]]
            for key, skips in ledger.skipped.items()
        ],
        "mirror_findings": [asdict(item) for item in ledger.mirror_findings.values()],
        "acceptances": [acceptances.as_fields(item) for item in ledger.acceptances.known.values()],
        "files": {table: sorted(files) for table, files in ledger.files.items()},
        "tables": ledger.tables,
        "commits": ledger.commits,
        "rows_forgotten": sorted(ledger.latencies.files_waiting() | ledger.rows_forgotten),
        "backlog": [
            [*_counter(key), [_parcel(item) for item in value]]
            for key, value in ledger.copies.backlog.items()
        ],
        "loaded": _pairs(ledger.reach.loaded),
        "passings": [[list(item.place), *item[1:]] for item in ledger.reach.passings.known],
        "passed_over": [
            [index, *stream, value.as_json()]
            for (index, stream), value in ledger.reach.passings.copies.items()
        ],
        "dead_letters": _pairs(ledger.dead_letters),
        "foreign": _pairs(ledger.foreign),
        "windows": [
            [*stream, [[start, runs.tolist()] for start, runs in windows.items()]]
            for stream, windows in ledger.windows.items()
        ],
        "producers": ledger.producers,
        "unaccounted": _pairs(ledger.unaccounted),
        "unheard": [records.as_fields(item) for item in ledger.barriers.unheard],
        "heard_until": ledger.barriers.heard_until,
        "overdue": [[*stream, value.as_json()] for stream, value in ledger.overdue.items()],
        "problems": [[sentence, *period] for sentence, period in ledger.problems.items()],
        "latencies": _latencies(ledger.latencies),
    }


def from_json(fields: Any) -> Ledger:
    """Undo `as_json`."""
    ledger = Ledger(*_settings(fields))
    ledger.read = {TopicPartition(*key): value for *key, value in fields["read"]}
    _take_reach(ledger.reach, fields)
    ledger.counted = {(tier, datacenter, topic) for tier, datacenter, topic in fields.get("counted", ())} or {
        (counter.tier, counter.place.datacenter, counter.place.topic) for counter in ledger.reach.coverage
    }
    ledger.compacted = {(tier, datacenter, topic) for tier, datacenter, topic in fields.get("compacted", ())}
    ledger.copies.folded = {
        (tier, Stream(*stream)): depth_from_json(value) for tier, *stream, value in fields["settled"]
    }
    ledger.copies.unjudged = {
        (tier, neighbour, Stream(*stream)): depth_from_json(value)
        for tier, neighbour, *stream, value in fields["unjudged"]
    }
    ledger.accounts = {Stream(*stream): _to_accounts(value) for *stream, value in fields["accounts"]}
    ledger.barriers.open = [item for item in map(_record, fields["barriers"]) if isinstance(item, Barrier)]
    ledger.barriers.passed = {
        (datacenter, topic): dict(map(tuple, value)) for datacenter, topic, value in fields["passed"]
    }
    ledger.standstills = {_to_counter(key): value for *key, value in fields["standstills"]}
    ledger.skipped = {
        _to_counter(key): [(reason, Period(*period)) for reason, *period in skips]
        for *key, skips in fields["skipped"]
    }
    for item in fields["mirror_findings"]:
        ledger.on_mirror_finding(records.mirror_finding(item))
    for item in fields.get("acceptances", ()):
        ledger.acceptances.take(acceptances.from_fields(item))
    ledger.files = {table: set(files) for table, files in fields["files"].items()}
    ledger.tables = dict(fields.get("tables", {}))
    ledger.commits = dict(fields["commits"])
    ledger.rows_forgotten = set(fields["rows_forgotten"])
    ledger.copies.backlog = {
        _to_counter(key): [_to_parcel(item) for item in value] for *key, value in fields["backlog"]
    }
    ledger.dead_letters = {(datacenter, topic): value for datacenter, topic, value in fields["dead_letters"]}
    ledger.foreign = {
        (tier, datacenter, topic): value for tier, datacenter, topic, value in fields["foreign"]
    }
    ledger.windows = {
        Stream(*stream): {start: np.array(runs, dtype=np.int64) for start, runs in windows}
        for *stream, windows in fields["windows"]
    }
    ledger.producers = {
        producer: ProducerName(*name) for producer, name in fields.get("producers", {}).items()
    }
    ledger.unaccounted = {Stream(*stream): value for *stream, value in fields["unaccounted"]}
    ledger.barriers.unheard = [item for item in map(_record, fields["unheard"]) if isinstance(item, Barrier)]
    ledger.barriers.heard_until = dict(fields["heard_until"])
    ledger.overdue = {Stream(*stream): depth_from_json(value) for *stream, value in fields["overdue"]}
    ledger.problems = {sentence: Period(*period) for sentence, *period in fields["problems"]}
    ledger.latencies = _to_latencies(fields["latencies"], ledger.late_after_ms)
    ledger.facts = from_fields(fields.get("facts"))
    ledger.aggregates = aggregates.from_fields(fields.get("aggregates"))
    ledger.batches = batch_ledger.from_fields(fields.get("batches"))
    ledger.modes.changes = {
        (datacenter, topic): [(since_ms, mode) for since_ms, mode in changes]
        for datacenter, topic, changes in fields.get("modes", ())
    }
    ledger.recounted = {SourcePartition(*key): value for *key, value in fields.get("recounted", ())}
    ledger.rebuilt = {(datacenter, topic): value for datacenter, topic, value in fields.get("rebuilt", ())}
    ledger.reindex()
    return ledger


def _take_reach(reach: Reach, fields: Any) -> None:
    """How far each tier was read."""
    reach.coverage = {_to_counter(key): _to_coverage(value) for *key, value in fields["coverage"]}
    reach.removed = {_to_counter(key): value for *key, value in fields.get("removed", ())}
    reach.whole_at = {(datacenter, topic): value for datacenter, topic, value in fields["whole_at"]}
    reach.loaded = {SourcePartition(*key): value for *key, value in fields["loaded"]}
    for place, *rest in fields["passings"]:
        reach.passings.add(Passed(SourcePartition(*place), *rest))
    reach.passings.copies = {
        (index, Stream(*stream)): depth_from_json(value) for index, *stream, value in fields["passed_over"]
    }


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _pairs(values: Any) -> list[list[Any]]:
    return [[*key, value] for key, value in values.items()]


def _counter(key: Counter) -> list[Any]:
    return [key.tier, *key.place]


def _to_counter(key: list[Any]) -> Counter:
    tier, *place = key
    return Counter(tier, SourcePartition(*place))


def _record(item: Any) -> records.CountRecord:
    return records.decode(item.encode()) if isinstance(item, str) else records.from_fields(item)


def _coverage(item: Coverage) -> list[Any]:
    begin, end = _around_held(item)
    return [*begin, [records.as_fields(link) for link in item.held], *end]


def _around_held(item: Coverage) -> tuple[list[Any], list[Any]]:
    """What is written before and behind the ranges that are held."""
    holes = [list(hole) for hole in item.passed]
    return [item.origin, item.base, holes], [item.folded_ms, item.folded_window]


def _to_coverage(fields: Any) -> Coverage:
    origin, base, passed, held, *folded = fields
    holes = [Uncounted(*hole) for hole in passed]
    item = Coverage(origin, base, position=base, passed=holes)
    if folded:
        item.folded_ms, item.folded_window = folded
    for known in held:
        link = _record(known)
        assert not isinstance(link, Barrier)
        item.add(link)
    return item


def _accounts(item: Accounts) -> dict[str, Any]:
    return {
        "acknowledged": item.acknowledged.as_json(),
        "undelivered": item.undelivered.as_json(),
        "settled": item.settled.as_json(),
        "open": [[*where, value.as_json()] for *where, value in item.open],
        "unjudged": item.unjudged.as_json(),
        "overdue": item.overdue.as_json(),
        "promised_sequence": item.promised_sequence,
        "window_size_ms": item.window_size_ms,
        "begun_ms": item.begun_ms,
        "complete_until": item.complete_until,
        "heard_at": item.heard_at,
        "next_sequence": item.next_sequence,
        "is_closed": item.is_closed,
    }


def _to_accounts(fields: Any) -> Accounts:
    return Accounts(
        acknowledged=depth_from_json(fields["acknowledged"]),
        undelivered=depth_from_json(fields["undelivered"]),
        open=[
            OpenAccount(partition, offset, start, depth_from_json(value))
            for partition, offset, start, value in fields["open"]
        ],
        unjudged=depth_from_json(fields["unjudged"]),
        overdue=depth_from_json(fields["overdue"]),
        settled=depth_from_json(fields["settled"]) if "settled" in fields else EMPTY,
        promised_sequence=fields["promised_sequence"],
        window_size_ms=fields["window_size_ms"],
        begun_ms=fields["begun_ms"],
        complete_until=fields["complete_until"],
        heard_at=fields["heard_at"],
        next_sequence=fields["next_sequence"],
        is_closed=fields["is_closed"],
    )


def _parcel(item: Parcel) -> list[Any]:
    return [item.first, item.next, item.at_ms, {name: value.as_json() for name, value in item.copies.items()}]


def _to_parcel(fields: Any) -> Parcel:
    first, following, at_ms, copies = fields
    found: dict[str, Depth] = {name: depth_from_json(value) for name, value in copies.items()}
    return Parcel(first=first, next=following, at_ms=at_ms, copies=found)


def _latencies(item: Latencies) -> dict[str, Any]:
    return {
        "histograms": [[*key, value.as_json()] for key, value in item.histograms.items()],
        "late": [[hop, *stream, value.as_json()] for (hop, stream), value in item.late.items()],
        "acknowledged": [[*key, value.as_json()] for key, value in item.acknowledged.items()],
        "appended": [[*key, value.as_json()] for key, value in item.appended.items()],
        "committed": [[*key, value.as_json()] for key, value in item.committed.items()],
        "hosts": item.hosts.names,
        "servers": item.servers,
        "recent": item.recent.as_json(),
        "skews": item.skews.as_json(),
        "next_offset": _pairs(item.next_offset),
    }


def _to_latencies(fields: Any, late_after_ms: int) -> Latencies:
    return Latencies(
        late_after_ms,
        histograms={
            (datacenter, span): Histogram.from_json(value) for datacenter, span, value in fields["histograms"]
        },
        late={(hop, Stream(*stream)): depth_from_json(value) for hop, *stream, value in fields["late"]},
        acknowledged={Stream(*key): Spans.from_json(value) for *key, value in fields["acknowledged"]},
        appended={SourcePartition(*key): Spans.from_json(value) for *key, value in fields["appended"]},
        committed={SourcePartition(*key): Spans.from_json(value) for *key, value in fields["committed"]},
        hosts=_to_hosts(fields.get("hosts", ())),
        servers=fields.get("servers", {}),
        recent=RecentLatencies.from_json(fields.get("recent", ())),
        skews=Skews.from_json(fields.get("skews", ())),
        next_offset={SourcePartition(*key): value for *key, value in fields["next_offset"]},
    )


def _to_hosts(names: Sequence[str]) -> Hosts:
    hosts = Hosts()
    for name in names:
        hosts.number(name)
    return hosts
