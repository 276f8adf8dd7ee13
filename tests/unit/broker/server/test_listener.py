"""What the listening sockets do when the broker may open no more files."""

from __future__ import annotations

import errno
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.config.listeners import Listener
from headrace.broker.server.listener import REPEAT_MS, Acceptor
from headrace.broker.waiting.round import Round


class ExhaustedSocket:
    """A listening socket of a process without descriptors."""

    def fileno(self) -> int:
        return 7

    def accept(self) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")


class Loop:
    """Readers, and what is to be called later."""

    def __init__(self) -> None:
        self.readers: dict[int, Any] = {}
        self.later: list[Any] = []

    def add_reader(self, number: int, callback: Any, *arguments: Any) -> None:
        self.readers[number] = lambda: callback(*arguments)

    def remove_reader(self, number: int) -> None:
        del self.readers[number]

    def call_later(self, delay_s: float, callback: Any, *arguments: Any) -> None:
        self.later.append(lambda: callback(*arguments))


def test_out_of_descriptors_it_pauses_and_says_once_a_minute_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SimpleNamespace(now_ms=5)
    network = SimpleNamespace(socket_request_max_bytes=100)
    broker: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: clock.now_ms),
        config=SimpleNamespace(network=network),
        together=Round(),
    )
    loop: Any = Loop()
    metrics: Any = SimpleNamespace()
    sockets: Any = [(Listener("PLAINTEXT", "localhost", 9092), ExhaustedSocket())]
    Acceptor(sockets, broker, metrics, loop).start()
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            loop.readers[7]()
            assert 7 not in loop.readers, "it must not spin"
            loop.later.pop()()
        assert len(caplog.records) == 1
        clock.now_ms += REPEAT_MS
        loop.readers[7]()
    assert len(caplog.records) == 2
    reason = vars(caplog.records[0])["facts"]["reason"]
    assert reason.startswith("Too many open files. Let the broker open more files")
