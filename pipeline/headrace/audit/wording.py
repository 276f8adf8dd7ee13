"""How a report's findings read as sentences, on its page and on a terminal alike.

Owns the words for a producer, a hop and what could not be judged. What comes in are rows of `report.as_json`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


def who(item: Row) -> str:
    """Name the producer of a finding or reason, by server and service before its uuid; empty where there is none."""
    uuid = f"producer {item['producer']}" if item["producer"] else ""
    return f"{_place_of(item)} ({uuid})" if uuid and _place_of(item) else uuid


def _place_of(item: Row) -> str:
    """Return where a producer runs; empty where neither an account nor an event of it has said so."""
    if not (item.get("server") or item.get("service")):
        return ""
    process = ""
    if item.get("host"):
        since = f" since {item['process_started']}" if item["process_started"] else ""
        process = f", process {item['pid']} on {item['host']}{since}"
    return f"server {item['server']}, service {item['service']}{process}"


def reason(item: Row) -> str:
    """Say why a report is not complete: of whom, of which topic, and what it is."""
    place = " of ".join(part for part in (who(item), item["topic"]) if part)
    place += f" in {item['datacenter']}" if item["datacenter"] else ""
    if item.get("warehouse"):
        place = f"{place}, warehouse {item['warehouse']}" if place else f"warehouse {item['warehouse']}"
    return f"{place}: {item['reason']}" if place else str(item["reason"])


def fault(item: Row) -> str:
    """Say what was lost, doubled or late: whose events, how many, where, and why where that is known."""
    where = f"{item['topic']} in {item['datacenter']} from {hop_of(item)}"
    why = ""
    if "partition" in item:
        offsets = f"offsets {item['first_offset']} to {item['last_offset']} of partition {item['partition']}"
        why = f"{offsets}: {item['reason']}" if item.get("reason") else offsets
    if not item["producer"]:
        return f"up to {item['count']:,} events of {where}" + (f", {why}" if why else "")
    sequences = f"sequences {item['first_sequence']} to {item['last_sequence']}" + (f"; {why}" if why else "")
    if not _place_of(item):
        return f"{item['count']:,} events of {where}, {who(item)}, {sequences}"
    return f"{who(item)}: {item['count']:,} events of {where}, {sequences}"


_TO_DO: Mapping[tuple[str, str], str] = {
    (
        "loss",
        "producer_to_live",
    ): "look for a leader that was elected uncleanly or a disk that was lost in the live cluster, and "
    "publish these sequences again from where they came from",
    (
        "loss",
        "live_to_offline",
    ): "look at `headrace mirror status` and the mirror's findings; while the live cluster still has "
    "these events, copy them from there",
    (
        "loss",
        "offline_to_warehouse",
    ): "look at the load's log and at what a person let it pass over; while the offline cluster "
    "still has these events, load them from there",
    (
        "loss",
        "live_to_aggregate",
    ): "look at the aggregates of `headrace mirror status`; while the live cluster still has these events, publish them "
    "again from there",
    (
        "duplicate",
        "live_to_aggregate",
    ): "read the aggregate by producer and sequence, each once; was it brought again after its znode below `offsets` was "
    "deleted, or a day after its last message?",
    (
        "duplicate",
        "producer_to_live",
    ): "let this producer be idempotent, and read the table by datacenter, topic, producer and "
    "sequence, each once",
    (
        "duplicate",
        "live_to_offline",
    ): "see to it that one mirror alone writes to this copy, and read the table by producer and "
    "sequence, each once",
    (
        "duplicate",
        "offline_to_warehouse",
    ): "see to it that one load alone writes to this table, and delete the rows whose "
    "_datacenter, _topic, _topic_partition and _offset are there before",
}
_STOPPED: str = "look at `headrace mirror status` for what happened at the source; `headrace mirror resume` lets the copy go on"


def to_do(item: Row) -> str:
    """Say what a person is to do about a finding."""
    if item["kind"] in ("loss", "duplicate") and item["hop"] == "producer_to_live" and not item["producer"]:
        return "ask who publishes there: these numbers are of the client's own; look for a leader that was elected uncleanly"
    if item["kind"] == "late":
        return "nothing for this one; where it happens often, look at the latency of this hop"
    if item["kind"] in ("truncation", "recreation"):
        return "nothing: a person let the load go on" if item["hop"] == "offline_to_warehouse" else _STOPPED
    return _TO_DO[item["kind"], item["hop"]]


def unknown(row: Row) -> str:
    """Say what a hop that cannot be judged leaves open."""
    where = f"{row['topic']} in {row['datacenter']} from {hop_name(row['hop'])}"
    return f"what was lost of {where}; {row['unknown']:,} events cannot be judged there"


def skew(item: Row) -> str:
    """Say of negative latencies whose clocks differ, and by how much at least."""
    begin, end = item["from_host"] or "a producer's host", item["to_host"] or "the host of the later time"
    what = f"{item['count']:,} latencies of {item['datacenter']} from {hop_name(item['hop'])} are negative and in no figure"
    if not item["is_certain"]:
        return f"{what}: {end} had the copies up to {duration(item['skew_seconds'])} before {begin} heard of the acknowledgement"
    if begin == end:
        return f"{what}: the clock of {begin} went back, or events bear times up to {duration(item['skew_seconds'])} ahead of it"
    return f"{what}: the clock of {begin} is ahead of the clock of {end}, by up to {duration(item['skew_seconds'])}"


def duration(seconds: float) -> str:
    """Write seconds as a person reads them."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def hop_name(hop: str) -> str:
    return hop.replace("_", " ")


def hop_of(item: Row) -> str:
    """Name the hop of a finding, and the further warehouse that it leads to."""
    name = hop_name(item["hop"])
    return f"{name} {item['warehouse']}" if item.get("warehouse") else name


def unknown_topics(report: Row) -> set[tuple[str, str]]:
    """Return the (datacenter, topic) of which some hop could not be judged, so that no loss found there means nothing."""
    return {(row["datacenter"], row["topic"]) for row in report.get("hops", ()) if row["state"] == "unknown"}
