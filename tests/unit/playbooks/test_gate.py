"""When a gate of a roll-out opens, and what it says when it does not."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from playbooks_kit import load

gate = load("headrace_gate")


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def scripted(*answers: Any) -> Callable[[], Any]:
    """A question that is answered so, the last time again and again."""
    left = list(answers)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def waited(*questions: Callable[[], Any], timeout_s: float = 10) -> tuple[Any, Any, float]:
    clock = Clock()
    hindrance, answers = gate.wait(questions, timeout_s, clock, clock.sleep)
    return hindrance, answers, clock.now


OPEN, CLOSED = gate.Answer(True, "yes"), gate.Answer(False, "not yet")


def test_it_opens_when_all_commands_end_well_in_one_pass() -> None:
    flapping = scripted(OPEN, CLOSED, OPEN)
    assert waited(flapping, scripted(CLOSED, OPEN)) == (None, ["yes", "yes"], 2 * gate.POLL_S)


def test_without_progress_time_runs_out_and_the_hindrance_is_told() -> None:
    hindrance, _, seconds = waited(scripted(OPEN), scripted(CLOSED))
    assert (hindrance, seconds) == ("not yet", 10)


def test_what_takes_long_is_asked_less_often() -> None:
    asked: list[None] = []

    def closed() -> Any:
        asked.append(None)
        return CLOSED

    assert waited(closed, timeout_s=600)[2] == 600
    assert 120 < len(asked) < 200


def test_a_broker_that_opens_its_logs_is_waited_for_as_long_as_it_makes_progress() -> None:
    recovering = [gate.Answer(False, "recovering", ("recovering", n // 15, 0)) for n in range(200)]
    assert waited(scripted(*recovering, OPEN))[0] is None
    hindrance, _, seconds = waited(scripted(*recovering))
    assert hindrance == "recovering"
    assert seconds > 10


def test_commands_are_judged_by_their_exit_and_quoted() -> None:
    failing = [sys.executable, "-c", "print('2 partitions'); raise SystemExit(1)"]
    assert gate.command_question([sys.executable, "-c", "print('well')"])() == gate.Answer(True, "well")
    found = gate.command_question(failing)()
    assert not found.is_open
    assert found.text.endswith("ends with 1:\n2 partitions")
    assert "cannot be run: No such file" in gate.command_question(["/nowhere/headrace"])().text


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server whose every page is that; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/ready"
        server.shutdown()


def test_a_broker_is_asked_whether_it_is_ready_and_how_far_it_is() -> None:
    told = {"state": "recovering", "logs_opened": 3, "bytes_checked": 70}
    with answering(503, json.dumps(told).encode()) as url:
        found = gate.ready_question(url)()
    assert (found.is_open, found.progress) == (False, ("recovering", 3, 70))
    with answering(503, b"an odd proxy") as url:
        assert gate.ready_question(url)().progress is None
    with answering(200, b"{}") as url:
        assert gate.ready_question(url)().is_open
    assert "does not answer" in gate.ready_question(url)().text


def test_who_does_not_serve_is_not_held_up() -> None:
    """A broker that answers as it should is told from one that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = {"kind": "kafka", "address": "127.0.0.1", "port": server.getsockname()[1]}

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(struct.pack(">iih", 6, 1, 0))

        threading.Thread(target=serve, daemon=True).start()
        assert not gate.is_silent(place)
    assert gate.is_silent(place, 0.2)
