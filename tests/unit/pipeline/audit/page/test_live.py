"""The live page: what a viewer asks for, what changed, and a server that works only while somebody looks."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from headrace.audit.judging.reconcile import reconcile
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.page import live_app
from headrace.audit.page.live import Query, Rates, View, page, parts, producers_by_place
from headrace.audit.page.live_app import Accepting, Board, build_app
from headrace.audit.records import Counted, CounterTier, MirrorFinding
from headrace.audit.report import as_json
from headrace.audit.windows import ProducerName
from headrace.broker.wire.partitions import TopicPartition
from headrace.registry.listening import Server, listen

NOW = 1_700_000_000_000
ALL = Query()
COLUMNS = (
    "produced",
    "live",
    "offline",
    "warehouse",
    "lost",
    "duplicated",
    "under_way",
    "compacted",
    "dead_letters",
    "no_event",
)


def view(number: int, *topics: str) -> View:
    """A round that found a truncation of each of these topics."""
    ledger = Ledger()
    for topic in topics:
        ledger.on_mirror_finding(
            MirrorFinding(
                id=topic,
                kind="truncation",
                datacenter="dc-east",
                topic=topic,
                partition=0,
                first_offset=1,
                last_offset=2,
                detected_ms=NOW,
                reason="<i>cut</i>",
            )
        )
    return View(number=number, at_ms=NOW, report=as_json(reconcile(ledger, NOW), ledger, NOW))


def test_findings_are_narrowed_to_what_is_asked_for_and_counted() -> None:
    found = view(1, "orders", "clicks")
    assert "of 2." not in parts(found, ALL)["findings"]
    for query in (Query(topic="orders"), Query(text="ORD"), Query(kind="truncation", topic="orders")):
        told = parts(found, query)["findings"]
        assert "1 of 2." in told
        assert "orders" in told
        assert "clicks" not in told
    for query in (
        Query(kind="loss"),
        Query(datacenter="dc-west"),
        Query(text="nowhere"),
        Query(state="accepted"),
    ):
        assert "0 of 2." in parts(found, query)["findings"]


def test_partitions_are_told_worst_first_and_numbers_lead_to_what_they_are_made_of() -> None:
    ledger = Ledger()
    for topic, copied in (("a", 10), ("b", 4), ("c", None)):
        ledger.on_count(counted("live", topic, 10))
        if copied is not None:
            ledger.on_count(counted("offline", f"dc-east.{topic}", copied))
    report = as_json(reconcile(ledger, NOW), ledger, NOW)
    told = [(row["topic"], row["state"], row["lag"], row["copied_until"]) for row in report["partitions"]]
    assert told == [
        ("c", "not counted", None, None),
        ("b", "behind", 6, None),
        ("a", "in step", 0, "2023-11-14T22:13:20Z"),
    ]
    report["topics"] = [
        {**dict.fromkeys(COLUMNS, 0), "datacenter": "dc-east", "topic": topic, "lost": lost}
        for topic, lost in (("a", 0), ("b&c", 7))
    ]
    found = View(number=1, at_ms=NOW, report=report)
    table = parts(found, ALL)["topics"]
    assert table.index("b&amp;c") < table.index("<td>a</td>")
    assert 'href="./?datacenter=dc-east&amp;topic=b%26c&amp;kind=loss#findings">7</a>' in table
    narrowed = parts(found, Query(topic="b"))
    assert "1 of 3." in narrowed["partitions"]
    assert "<td>c</td>" not in narrowed["partitions"]
    assert "0 of 2." in narrowed["topics"]


@pytest.mark.parametrize(("behind", "state"), [(0, "stopped"), (1, "in step")])
def test_a_partition_stands_where_nothing_is_counted_behind_a_finding(behind: int, state: str) -> None:
    ledger = Ledger()
    finding = MirrorFinding(
        id="1",
        kind="gap",
        datacenter="dc-east",
        topic="a",
        partition=0,
        first_offset=10,
        last_offset=-1,
        detected_ms=NOW,
        reason="<b>gone</b>",
    )
    ledger.on_mirror_finding(finding)
    ledger.on_count(counted("live", "a", 10 + behind))
    ledger.on_count(counted("offline", "dc-east.a", 10 + behind))
    (row,) = as_json(reconcile(ledger, NOW), ledger, NOW)["partitions"]
    assert (row["state"], row["reason"]) == (state, "" if behind else "gap: <b>gone</b>")


def counted(tier: CounterTier, topic: str, end: int) -> Counted:
    return Counted(
        tier=tier,
        datacenter="dc-east" if tier == "live" else "offline",
        partition=TopicPartition(topic, 0),
        first=0,
        next=end,
        tallies=(),
        at_ms=NOW,
    )


def test_what_a_viewer_asks_for_and_what_producers_are_called_is_escaped() -> None:
    script = '"><script>alert(1)</script>'
    query = Query.of({"topic": script, "kind": script, "unknown": "x"})
    found = View(
        number=1,
        at_ms=NOW,
        report=view(1, script).report,
        producers={ProducerName(script, "shop"): 3},
        trouble=script,
    )
    told = page(found, query)
    assert "<script>alert" not in told
    assert told.count("<script") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;</td><td>shop</td>" in told


def test_a_long_search_is_cut() -> None:
    assert len(Query.of({"text": "x" * 100_000}).text) == 200


def test_rates_are_of_two_rounds_and_never_negative() -> None:
    def report(live: int) -> dict[str, Any]:
        row = {"datacenter": "dc-east", "produced": 10, "live": live, "offline": 0, "warehouse": 0}
        return {"topics": [row, row]}

    rates = Rates()
    assert rates.observe(report(100), 50.0) == {}
    assert rates.observe(report(150), 60.0)["dc-east"] == {
        "produced": 0,
        "live": 10,
        "offline": 0,
        "warehouse": 0,
    }
    assert rates.observe(report(0), 70.0)["dc-east"]["live"] == 0
    assert rates.observe(report(9), 70.1) == {}


def test_producers_are_told_by_server_and_service() -> None:
    names = [ProducerName("web-1", "shop"), ProducerName("web-1", "shop"), ProducerName("web-2", "shop")]
    found = View(number=1, at_ms=NOW, report=view(1).report, producers=producers_by_place(names))
    assert '<td>web-1</td><td>shop</td><td class="number">2</td>' in parts(found, ALL)["producers"]


@contextmanager
def served(work: Callable[[Board], None], accepting: Accepting | None = None) -> Iterator[tuple[str, Board]]:
    """The application on an address of its own; `work` is the auditor's thread."""
    boards: list[Board] = []
    servers: list[Server] = []
    is_up = threading.Event()
    listener = listen(("127.0.0.1", 0))

    async def serve() -> None:
        board = Board()
        boards.append(board)
        servers.append(Server(build_app(board, accepting), shutdown_seconds=5))
        worker = threading.Thread(target=work, args=(board,))
        worker.start()
        is_up.set()
        await servers[0].serve(sockets=[listener])
        board.end()
        await asyncio.to_thread(worker.join)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert is_up.wait(20)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", boards[0]
    finally:
        servers[0].stop()
        boards[0].loop.call_soon_threadsafe(boards[0].end)
        thread.join()


def heard(lines: Iterator[str]) -> tuple[str, str]:
    """The next event: its name and its data."""
    name = next(line for line in lines if line.startswith("event: "))
    return name.removeprefix("event: "), next(lines).removeprefix("data: ")


def test_a_viewer_is_sent_what_changed_and_nobody_works_while_nobody_looks() -> None:
    rounds: list[int] = []
    go_on = threading.Semaphore(0)

    def work(board: Board) -> None:
        topics = ["orders"]
        while not board.is_over:
            if board.wanted.wait(0.05):
                rounds.append(len(rounds) + 1)
                board.put_up(view(rounds[-1], *topics))
                go_on.acquire()
                topics.append(f"t{len(topics)}")

    with served(work) as (address, board):
        assert rounds == []
        with requests.get(f"{address}/events", stream=True, timeout=20) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            lines = answer.iter_lines(decode_unicode=True)
            first = next(
                json.loads(data) for name, data in iter(lambda: heard(lines), None) if "orders" in data
            )
            assert {"verdict", "findings", "way", "time"} <= set(first)
            go_on.release()
            changed = next(
                json.loads(data) for name, data in iter(lambda: heard(lines), None) if "t1" in data
            )
            assert {"findings", "verdict"} <= set(changed)
            assert "latency" not in changed
        while board.wanted.is_set():
            pass
        done = len(rounds)
        go_on.release()
        assert "t1" in requests.get(address, timeout=20).text
        board.is_over = True
        go_on.release(9)
    assert done <= len(rounds) <= done + 2


def test_the_report_waits_for_a_round_of_its_own() -> None:
    def work(board: Board) -> None:
        number = 0
        while not board.is_over:
            if board.wanted.wait(0.05):
                number += 1
                board.put_up(view(number, f"round-{number}"))
                threading.Event().wait(0.05)

    with served(work) as (address, _):
        first = requests.get(f"{address}/report.json", timeout=20).json()
        again = requests.get(f"{address}/report.json", timeout=20).json()
    assert first["findings"][0]["topic"] != again["findings"][0]["topic"]


def test_too_many_viewers_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_app, "VIEWERS_MAX", 1)

    def work(board: Board) -> None:
        board.put_up(view(1))

    with served(work) as (address, _):
        with requests.get(f"{address}/events", stream=True, timeout=20) as answer:
            lines = answer.iter_lines()
            next(lines)
            refused = requests.get(f"{address}/events", timeout=20)
        assert (refused.status_code, refused.text) == (503, "1 look already; close one of these pages.\n")
        assert (
            requests.get(f"{address}/live.js", timeout=20)
            .headers["Content-Type"]
            .startswith("text/javascript")
        )
        policy = requests.get(address, timeout=20).headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy


SAID = {"id": "0f3a", "by": "ada", "reason": "disk lost"}


@pytest.mark.parametrize(
    ("headers", "body", "origins", "status"),
    [
        ({}, SAID, (), 204),
        ({"Content-Type": "application/json; charset=utf-8"}, SAID, (), 204),
        ({"Origin": "http://elsewhere.example"}, SAID, (), 403),
        ({"Origin": ""}, SAID, (), 403),
        ({"Origin": "null"}, SAID, (), 403),
        ({"Origin": "http://pointed.example", "Host": "pointed.example"}, SAID, (), 403),
        ({"Origin": "http://localhost:1", "Host": "localhost:1"}, SAID, (), 204),
        ({"Origin": "https://audit.example"}, SAID, ("https://audit.example",), 204),
        ({}, SAID, ("https://audit.example",), 403),
        ({"Content-Type": "text/plain"}, SAID, (), 415),
        ({}, {**SAID, "reason": 7}, (), 400),
        ({}, [SAID], (), 400),
        ({}, {**SAID, "reason": "x" * 20_000}, (), 413),
        ({}, {**SAID, "id": "unknown"}, (), 409),
    ],
)
def test_only_the_page_itself_may_accept(
    headers: dict[str, str], body: Any, origins: tuple[str, ...], status: int
) -> None:
    said: list[tuple[str, ...]] = []

    def say(*words: str) -> str:
        said.append(words)
        return "no finding has that id" if "unknown" in words else ""

    with served(lambda board: board.put_up(view(1)), Accepting(say, origins)) as (address, board):
        sent = {"Origin": address, "Content-Type": "application/json", **headers}
        answer = requests.post(f"{address}/accept", data=json.dumps(body), headers=sent, timeout=20)
        assert answer.status_code == status
        assert bool(said) == (status in (204, 409))
        assert board.hurried.is_set() == (status == 204)
    assert status == 204 or answer.text.endswith(".\n")
    assert said in ([], [("accept", body["id"] if isinstance(body, dict) else "", "ada", "disk lost")])


def test_a_page_that_accepts_nothing_says_so_and_has_no_button() -> None:
    found = view(1, "orders")
    assert "data-accept" not in page(found, ALL)
    assert "data-accept" in page(found, ALL, may_accept=True)
    with served(lambda board: board.put_up(found)) as (address, _):
        answer = requests.post(f"{address}/accept", json=SAID, headers={"Origin": address}, timeout=20)
    assert answer.status_code == 403
    assert "--allow-accept" in answer.text


def test_what_the_page_was_made_of_is_not_sent_once_more() -> None:
    found = view(1, "orders")
    with served(lambda board: board.put_up(found)) as (address, board):
        shown = requests.get(address, timeout=20).text
        (has,) = re.findall('data-view="([^"]+)"', shown)
        with requests.get(f"{address}/events?has={has}", stream=True, timeout=20) as answer:
            lines = answer.iter_lines(decode_unicode=True)
            assert heard(lines)[0] == "round"
            board.put_up(view(2, "orders", "clicks"))
            name, data = heard(lines)
            assert (name, "clicks" in data, "latency" in json.loads(data)) == ("parts", True, False)
        with requests.get(f"{address}/events?has=another", stream=True, timeout=20) as answer:
            assert "latency" in json.loads(heard(answer.iter_lines(decode_unicode=True))[1])
