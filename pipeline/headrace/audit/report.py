"""The audit's outcome as `report.json`, in the format that DESIGN fixes, with a few fields more.

Owns the names and units of the report: times are ISO 8601 in UTC, latencies seconds. `produced` are acknowledged events,
without monitoring events and rejects; `rejected` are records of the dead-letter topics in the live tier. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from headrace.audit.acceptances import accepted_sums, id_of, open_verdict
from headrace.audit.further import verdict_at
from headrace.audit.judging.judge import ENDS
from headrace.audit.latency import HOPS, SPANS, Hop, Latencies
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import (
    OVERALL,
    AggregateTopic,
    BatchTopic,
    Counts,
    Finding,
    Incomplete,
    Outcome,
    windows,
)
from headrace.audit.parcels import is_rejected
from headrace.audit.partitions import PartitionRow, partition_rows
from headrace.audit.period import BEGIN_MS, END_MS, Period
from headrace.audit.windows import ProducerName
from headrace.audit.wording import fault, reason, to_do

SCHEMA_VERSION: Final = 2
"""Goes up when a field goes away or means something else; further fields may come at any time."""
LISTED_MAX: Final = 10_000
"""Findings and reasons that are listed; totals count all."""
NAMED_MAX: Final = 3
"""Faults, and reasons, that the verdict's sentence names."""
UNCLAIMED: Final = "nobody claims it"
_NOBODY: Final = ProducerName("", "")
_TIERS: Final = ("produced", "live", "offline", "warehouse", "lost", "duplicated")


def as_json(outcome: Outcome, ledger: Ledger, now_ms: int) -> dict[str, Any]:
    """Return the report as JSON types."""
    totals = Counts()
    rejected = 0
    for (_, topic), counts in outcome.topics.items():
        if is_rejected(topic):
            rejected += counts.live
            counts = Counts(**_faults(counts))
        totals.add(counts)
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": outcome.verdict,
        "open_verdict": open_verdict(outcome, ledger.acceptances),
        "complete_until": time_text(outcome.complete_until),
        **_period(outcome.period, now_ms),
        "totals": {
            **_counts(totals),
            "rejected": rejected,
            "under_way": totals.under_way,
            "compacted": totals.compacted,
            "unacknowledged": sum(outcome.unacknowledged.get(key, 0) for key in outcome.topics),
            "dead_letters": sum(ledger.dead_letters.get(key, 0) for key in outcome.topics),
        },
        "accepted": accepted_sums(outcome, ledger.acceptances)._asdict(),
        "topics": _topics(outcome, ledger, rejected=False),
        "rejected_topics": _topics(outcome, ledger, rejected=True),
        "header_topics": [_batch_topic(key, found) for key, found in sorted(outcome.batches.items())],
        "aggregate_topics": [_aggregate(key, found) for key, found in sorted(outcome.aggregates.items())],
        "warehouses": [_warehouse(name, outcome, ledger) for name in outcome.further],
        "warehouse_topics": [
            {"name": name, "datacenter": key[0], "topic": key[1], **_at_warehouse(counts)}
            | {"complete_until": time_text(found.watermarks.get(key))}
            for name, found in outcome.further.items()
            for key, counts in sorted(found.topics.items())
        ],
        "off_topics": [
            {"datacenter": datacenter, "topic": topic} for datacenter, topic in sorted(outcome.off)
        ],
        "latency_seconds": {span: ledger.latencies.histogram(span).summary() for span in SPANS},
        "latency_seconds_by_datacenter": _by_datacenter(ledger.latencies),
        "negative_latencies": _negative(ledger.latencies),
        "findings": [_finding(item, ledger) for item in outcome.findings[:LISTED_MAX]],
        "incomplete": [_incomplete(item, ledger) for item in outcome.incomplete[:LISTED_MAX]],
        "windows": [
            {
                "datacenter": item.datacenter,
                "topic": item.topic,
                **_period(item.period, None),
                "verdict": item.verdict,
            }
            for item in windows(outcome)[:LISTED_MAX]
        ],
        "beyond": {name: getattr(outcome.beyond, name) for name in ("lost", "duplicated", "under_way")},
        "uncounted": [
            {"tier": tier, "datacenter": datacenter, "topic": topic}
            for tier, datacenter, topic in sorted(outcome.uncounted)
        ],
        "hops": _hops(outcome),
        "partitions": [_partition(row) for row in partition_rows(ledger)[:LISTED_MAX]],
        "late_after_seconds": ledger.late_after_ms / 1000,
        "generated_at": time_text(now_ms),
    }


def _topics(outcome: Outcome, ledger: Ledger, *, rejected: bool) -> list[dict[str, Any]]:
    return [
        _topic(key, counts, outcome, ledger)
        for key, counts in sorted(outcome.topics.items())
        if is_rejected(key[1]) == rejected
    ]


def _hops(outcome: Outcome) -> list[dict[str, Any]]:
    return [
        {
            "datacenter": datacenter,
            "topic": topic,
            "hop": hop,
            "state": _state(outcome, datacenter, topic, hop),
            **_faults(counts),
        }
        for (datacenter, topic, hop), counts in sorted(
            outcome.hops.items(), key=lambda item: (*item[0][:2], HOPS.index(item[0][2]))
        )
    ]


def _by_datacenter(latencies: Latencies) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (datacenter, span), histogram in sorted(latencies.histograms.items()):
        found.setdefault(datacenter, {})[span] = histogram.summary()
    return found


def _negative(latencies: Latencies) -> list[dict[str, Any]]:
    """Return what is in no latency because it came out negative, the largest difference first."""
    found = sorted(latencies.skews.found.items(), key=lambda item: (-item[1].largest_ms, item[0]))
    return [
        {
            "datacenter": clocks.datacenter,
            "hop": clocks.span,
            "from_host": clocks.begin,
            "to_host": clocks.end,
            "count": skew.count,
            "skew_seconds": skew.largest_ms / 1000,
            "is_certain": skew.certain > 0,
        }
        for clocks, skew in found
    ]


def _counts(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in _TIERS}


def _faults(counts: Counts) -> dict[str, int]:
    return {
        name: getattr(counts, name) for name in ("lost", "duplicated", "under_way", "unknown", "compacted")
    }


def _state(outcome: Outcome, datacenter: str, topic: str, hop: Hop) -> str:
    """Return whether a hop of a topic is `judged`, `unknown` or, where there is nothing to judge, `not loaded`."""
    if hop == "offline_to_warehouse" and is_rejected(topic):
        return "not loaded"
    is_uncounted = any((tier, datacenter, topic) in outcome.uncounted for tier in ENDS[hop])
    return "unknown" if is_uncounted or outcome.hops[datacenter, topic, hop].unknown else "judged"


def _topic(key: tuple[str, str], counts: Counts, outcome: Outcome, ledger: Ledger) -> dict[str, Any]:
    datacenter, topic = key
    loaded = {"warehouse": None} if is_rejected(topic) else {}
    return {
        "datacenter": datacenter,
        "topic": topic,
        **_counts(counts),
        **loaded,
        "complete_until": time_text(outcome.watermarks.get(key)),
        "under_way": counts.under_way,
        "compacted": counts.compacted,
        "unacknowledged": outcome.unacknowledged.get(key, 0),
        "dead_letters": ledger.dead_letters.get(key, 0),
        "no_event": ledger.foreign.get(("live", datacenter, topic), 0),
    }


def _batch_topic(key: tuple[str, str], found: BatchTopic) -> dict[str, Any]:
    return {
        "datacenter": key[0],
        "topic": key[1],
        "live": found.live.messages,
        "offline": None if found.is_brought else found.offline.messages,
        "live_bytes": found.live.size_bytes,
        "offline_bytes": None if found.is_brought else found.offline.size_bytes,
        "control_batches": found.live.control,
        "aborted": found.live.aborted,
        "lost": found.lost,
        "duplicated": found.duplicated,
        "under_way": found.under_way,
        "verdict": found.verdict,
        "producer_to_live": UNCLAIMED,
    }


def _aggregate(key: tuple[str, str], found: AggregateTopic) -> dict[str, Any]:
    counts = found.counts
    return {
        "datacenter": key[0],
        "topic": key[1],
        "live": counts.live,
        "aggregate": counts.offline,
        "lost": counts.lost,
        "duplicated": counts.duplicated,
        "under_way": counts.under_way,
        "unknown": counts.unknown,
        "verdict": found.verdict,
    }


def _warehouse(name: str, outcome: Outcome, ledger: Ledger) -> dict[str, Any]:
    found = outcome.further[name]
    totals = Counts()
    for counts in found.topics.values():
        totals.add(counts)
    return {
        "name": name,
        "verdict": verdict_at(outcome, name),
        "complete_until": time_text(found.watermarks.get(OVERALL)),
        "totals": _at_warehouse(totals),
        "accepted": accepted_sums(outcome, ledger.acceptances, name)._asdict(),
        "latency_seconds": {span: histogram.summary() for span, histogram in found.latencies.items()},
    }


def _at_warehouse(counts: Counts) -> dict[str, int]:
    return {"offline": counts.offline, "warehouse": counts.warehouse, **_faults(counts)}


def _partition(row: PartitionRow) -> dict[str, Any]:
    copied_until_ms = row.pop("copied_until_ms")
    return {**row, "copied_until": time_text(copied_until_ms)}


def _finding(item: Finding, ledger: Ledger) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": id_of(item),
        "kind": item.kind,
        "hop": item.hop,
        "datacenter": item.stream.datacenter,
        "topic": item.stream.topic,
        **_place(item.stream.producer, ledger),
        "producer": item.stream.producer,
        "first_sequence": item.first_sequence,
        "last_sequence": item.last_sequence,
        "count": item.count,
        "window_start": time_text(item.window_start) if item.window_start >= 0 else None,
    }
    if item.partition >= 0:
        fields |= {
            "partition": item.partition,
            "first_offset": item.first_offset,
            "last_offset": item.last_offset,
        }
    if item.reason:
        fields["reason"] = item.reason
    if item.warehouse:
        fields["warehouse"] = item.warehouse
    return {
        **fields,
        "what": fault(fields),
        "since": fields["window_start"],
        "to_do": to_do(fields),
        "accepted": _acceptance(item, ledger),
    }


def _acceptance(item: Finding, ledger: Ledger) -> dict[str, Any] | None:
    found = ledger.acceptances.of(item)
    if found is None:
        return None
    return {"id": found.id, "by": found.by, "reason": found.reason, "at": time_text(found.at_ms)}


def _place(producer: str, ledger: Ledger) -> dict[str, Any]:
    """Return where a producer runs; its process where an account has named it."""
    name = ledger.producers.get(producer, _NOBODY)
    process = {"host": name.host, "pid": name.pid, "process_started": time_text(name.started_ms)}
    return {"server": name.server, "service": name.service, **(process if name.host else {})}


def named(outcome: Outcome, ledger: Ledger) -> list[str]:
    """Say of whom the first faults and reasons are, a sentence each."""
    faults = [item for item in outcome.findings if item.kind in ("loss", "duplicate")][:NAMED_MAX]
    reasons = outcome.incomplete[:NAMED_MAX]
    return [
        *(str(_finding(item, ledger)["what"]) for item in faults),
        *(reason(_incomplete(item, ledger)) for item in reasons),
    ]


def _incomplete(item: Incomplete, ledger: Ledger) -> dict[str, Any]:
    return {
        "datacenter": item.datacenter,
        "topic": item.topic,
        **_place(item.producer, ledger),
        "producer": item.producer,
        "reason": item.reason,
        **({"warehouse": item.warehouse} if item.warehouse else {}),
        **_period(item.period, None),
    }


def _period(period: Period, now_ms: int | None) -> dict[str, str | None]:
    """Return both ends; None where there is none, or `now_ms` for an end to come."""
    until_ms = now_ms if period.until_ms >= END_MS else period.until_ms
    return {
        "since": time_text(period.since_ms if period.since_ms > BEGIN_MS else None),
        "until": time_text(until_ms),
    }


def time_text(time_ms: int | None) -> str | None:
    """Return a time in whole seconds, rounded down; None where there is none or it is out of all bounds."""
    if time_ms is None or time_ms <= 0:
        return None
    try:
        return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return None


def sentence(report: Mapping[str, Any]) -> str:
    """Say the verdict, and what is behind it, in one or two sentences."""
    totals = report["totals"]
    if report["verdict"] == "complete":
        late = sum(item["count"] for item in report["findings"] if item["kind"] == "late")
        also = f" {late:,} of them came late." if late else ""
        arrived = f"All {totals['produced']:,} events arrived in the warehouse, each exactly once."
        if not totals["produced"]:
            arrived = "Nobody accounts for an event of this time, and none is there."
        if report["header_topics"] and not report["topics"]:
            arrived = ""
        if totals["compacted"]:
            arrived = (
                f"Of {totals['produced']:,} events {totals['compacted']:,} were removed by compaction, as the cleanup.policy of "
                "their topics says; all others arrived in the warehouse, each exactly once."
            )
        further = f"{_copied(report)}{_loaded(report)}{_unacknowledged(report)}"
        return f"{arrived}{also}{further}{_buried(report)}{_beyond(report)}".strip()
    facts = []
    if totals["lost"]:
        facts.append(f"{totals['lost']:,} events are lost")
    if totals["duplicated"]:
        facts.append(f"{totals['duplicated']:,} copies are too many")
    if totals["under_way"]:
        facts.append(f"{totals['under_way']:,} events are on their way")
    facts += _at_further(report)
    facts += _uncounted(report)
    facts += _unaccounted(report)
    facts += [f"{item['kind']}: {fault(item)}" for item in _faulty(report)[:NAMED_MAX]]
    facts += [f"{item['topic']} in {item['datacenter']}: {item['kind']}" for item in _stops(report)[:3]]
    facts += _named(report)
    found = f"{'; '.join(facts)}." if facts else "Not everything could be counted."
    return f"{found}{_unacknowledged(report)}{_buried(report)}{_accepted(report)}{_beyond(report)}"


def _buried(report: Mapping[str, Any]) -> str:
    """Say how many events became dead letters, which count as being there."""
    count = report["totals"]["dead_letters"]
    return (
        f" {count:,} of the events so far have no row: warehouse.dead_letter has them, with the reason."
        if count
        else ""
    )


def _unacknowledged(report: Mapping[str, Any]) -> str:
    """Say how many events nobody acknowledged, which are no loss where they are missing."""
    count = report["totals"]["unacknowledged"]
    return f" {count:,} events were not acknowledged to their producers, and are nowhere." if count else ""


def _accepted(report: Mapping[str, Any]) -> str:
    """Say how much of it is known and accepted."""
    accepted = report["accepted"]
    if not accepted["findings"]:
        return ""
    whole = " That is all there is." if report["open_verdict"] == "complete" else ""
    return (
        f" Accepted findings: {accepted['findings']:,}, with {accepted['lost']:,} events lost and "
        f"{accepted['duplicated']:,} copies too many.{whole}"
    )


def _copied(report: Mapping[str, Any]) -> str:
    """Say what there is of the topics that are counted by their batch headers, all of which are complete."""
    rows = report["header_topics"]
    if not rows:
        return ""
    messages = sum(row["live"] for row in rows)
    topics = f"{len(rows):,} topics" if len(rows) > 1 else f"the topic {rows[0]['topic']}"
    return (
        f" All {messages:,} messages of {topics} that the live clusters have are in the offline cluster, by their batch headers; "
        "what their producers sent nobody claims."
    )


def _loaded(report: Mapping[str, Any]) -> str:
    """Say what further warehouses have, all of which are complete."""
    told = [f"{row['totals']['warehouse']:,} in {row['name']}" for row in report["warehouses"]]
    return f" So did those of the further warehouses: {', '.join(told)}." if told else ""


def _at_further(report: Mapping[str, Any]) -> list[str]:
    """Say how much is wrong on the way to further warehouses."""
    words = {"lost": "are lost", "duplicated": "are too many", "under_way": "are on their way"}
    return [
        f"{row['totals'][name]:,} events {word} from the offline cluster to the further warehouse {row['name']}"
        for row in report["warehouses"]
        for name, word in words.items()
        if row["totals"][name]
    ]


def _beyond(report: Mapping[str, Any]) -> str:
    """Say what is not whole outside of the time that the report is about."""
    words = {"lost": "lost", "duplicated": "copies too many", "under_way": "on their way"}
    found = [f"{report['beyond'][name]:,} {word}" for name, word in words.items() if report["beyond"][name]]
    return f" Outside of the time of this report: {', '.join(found)}." if found else ""


def _uncounted(report: Mapping[str, Any]) -> list[str]:
    """Name the topics whose events nobody counts, and what is unknown for that."""
    return [
        f"no counter counts {item['topic']} of {item['datacenter']} in the {item['tier']} cluster, so what was lost there is "
        "unknown"
        for item in report["uncounted"][:NAMED_MAX]
    ]


def _unaccounted(report: Mapping[str, Any]) -> list[str]:
    """Say that nothing is acknowledged of what arrived, where that is so."""
    hops = [item for item in report["hops"] if item["hop"] == "producer_to_live"]
    arrived = sum(item["unknown"] for item in hops)
    if report["totals"]["produced"] or not arrived:
        return []
    return [
        f"{arrived:,} events arrived, of which no producer's account says anything, so what was lost before the live "
        "cluster is unknown"
    ]


def _faulty(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the faults, those that nobody has accepted first."""
    found = [item for item in report["findings"] if item["kind"] in ("loss", "duplicate")]
    return sorted(found, key=lambda item: item["accepted"] is not None)


def _stops(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [item for item in report["findings"] if item["kind"] in ("truncation", "recreation")]


def _named(report: Mapping[str, Any]) -> list[str]:
    """Name the producers and inputs that keep the report from being complete."""
    reasons = [item for item in report["incomplete"] if "on their way" not in item["reason"]]
    named = [reason(item) for item in reasons[:NAMED_MAX]]
    left = len(reasons) - NAMED_MAX
    return [*named, f"{left} further reasons"] if left > 0 else named
