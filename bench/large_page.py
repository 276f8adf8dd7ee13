"""A page of the audit as large as they get, and a server for it: 1,000 topics and 10,000 findings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from headrace.audit.judging.reconcile import reconcile
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Counts, Finding
from headrace.audit.page.live import View
from headrace.audit.page.live_app import Board, build_app
from headrace.audit.records import Counted, CounterTier
from headrace.audit.report import as_json
from headrace.audit.windows import Stream
from headrace.broker.wire.partitions import TopicPartition
from headrace.registry.listening import Server, listen

TOPICS, PARTITIONS, FINDINGS = 1_000, 4, 10_000
NOW = 1_700_000_000_000
HOPS = ("producer_to_live", "live_to_offline", "offline_to_warehouse")
START_SECONDS_MAX = 20


def large_view() -> View:
    """The state of such an audit after a round."""
    ledger = Ledger()
    tiers: tuple[CounterTier, CounterTier] = ("live", "offline")
    for number in range(TOPICS):
        for partition in range(PARTITIONS):
            for tier in tiers:
                name = f"topic-{number}" if tier == "live" else f"dc-east.topic-{number}"
                counted = Counted(
                    tier=tier,
                    datacenter="dc-east" if tier == "live" else "offline",
                    partition=TopicPartition(name, partition),
                    first=0,
                    next=100 if tier == "live" else 90,
                    tallies=(),
                    at_ms=NOW,
                )
                ledger.on_count(counted)
    outcome = reconcile(ledger, NOW)
    for number in range(TOPICS):
        topic = ("dc-east", f"topic-{number}")
        outcome.topics[topic] = Counts(produced=1000, live=1000, offline=1000, warehouse=990, lost=10)
        outcome.hops.update({(*topic, hop): Counts(lost=3) for hop in HOPS})  # type: ignore[misc]
    outcome.findings = [
        Finding(
            kind="loss",
            hop="live_to_offline",
            stream=Stream("dc-east", f"topic-{number % TOPICS}", f"producer-{number}"),
            first_sequence=number,
            last_sequence=number,
            count=1,
            window_start=NOW - number % 1000 * 10_000,
            window_end=NOW,
        )
        for number in range(FINDINGS)
    ]
    return View(number=1, at_ms=NOW, report=as_json(outcome, ledger, NOW))


def changed(view: View) -> View:
    """The next round: other numbers in every part that has many rows."""
    assert view.report is not None
    more = {
        name: [{**row, field: row[field] + 1} for row in view.report[name]]
        for name, field in (("topics", "live"), ("findings", "count"), ("partitions", "live"))
    }
    return replace(view, number=view.number + 1, report={**view.report, **more})


@contextmanager
def served(view: View) -> Iterator[tuple[str, Board]]:
    """The page's address, and the board that its next states are put on."""
    boards: list[Board] = []
    servers: list[Server] = []
    is_up = threading.Event()
    listener = listen(("127.0.0.1", 0))

    async def serve() -> None:
        boards.append(Board())
        boards[0].view = view
        servers.append(Server(build_app(boards[0]), shutdown_seconds=5))
        is_up.set()
        await servers[0].serve(sockets=[listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert is_up.wait(START_SECONDS_MAX), "the server starts"
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", boards[0]
    finally:
        boards[0].loop.call_soon_threadsafe(boards[0].end)
        servers[0].stop()
        thread.join()
