"""A connection on a real socket pair, its loop's turns driven by the test."""

from __future__ import annotations

import itertools
import logging
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from manual_loop import ManualLoop

from headrace.broker.handlers import table
from headrace.broker.handlers.call import Call, Client
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.handlers.table import Handler
from headrace.broker.log.files import OsFiles
from headrace.broker.log.results import LogSlice
from headrace.broker.quotas.buckets import Rate, Windows
from headrace.broker.quotas.usage import Share, unlimited
from headrace.broker.server.sockets import transport
from headrace.broker.server.sockets.channel import PARKED_MAX, REPLY_SIZE_MAX
from headrace.broker.server.sockets.connection import Connection
from headrace.broker.server.sockets.holdings import Holdings
from headrace.broker.server.sockets.transport import PlainTransport
from headrace.broker.server.sockets.turns import TURN_S, Turns
from headrace.broker.server.status.metrics import KEY_COUNT
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.round import Round
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

PRODUCE, METADATA, HEARTBEAT = 0, 3, 12


class Bench:
    """A connection under test, the client's end of it, and a handler that the test provides."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = ManualLoop()
        self.now_s = 0.0
        self.served: list[int] = []
        self.runs: list[int] = []
        self.answer: Callable[[int], Any] = lambda correlation_id: [reply(correlation_id)]
        self.answer_run: Callable[[int], Any] = lambda correlation_id: [reply(correlation_id)]
        self.closed: list[Connection] = []
        ours, self.client = socket.socketpair()
        ours.setblocking(False)
        self.client.settimeout(5)
        self.requests: list[tuple[int, int]] = []
        self.metrics = SimpleNamespace(
            handling_seconds=[0.0] * KEY_COUNT,
            waiting_seconds=[0.0] * KEY_COUNT,
            bytes_in=0,
            bytes_out=0,
            muted_connections=0,
            request=lambda key, size: self.requests.append((key, size)),
        )
        broker = SimpleNamespace(
            config=SimpleNamespace(network=SimpleNamespace(socket_request_max_bytes=100_000)),
            metrics=self.metrics,
            client_usage=unlimited(),
            clock=SimpleNamespace(monotonic_ms=lambda: int(self.now_s * 1000)),
        )
        handlers = {
            METADATA: Handler(METADATA, "M", 0, 1, APIS[METADATA], self.serve),
            PRODUCE: Handler(PRODUCE, "P", 0, 1, APIS[PRODUCE], None, self.serve_run),
        }
        monkeypatch.setattr(table, "HANDLERS", handlers)
        monkeypatch.setattr(transport, "peer_of", lambda sock: "peer")
        self.readings_closed = 0
        self.turns = Turns(self.loop, Round(), lambda: self.now_s)  # type: ignore[arg-type]
        self.holdings = Holdings(0)
        self.connection = Connection(
            PlainTransport(ours),
            Client("host", "PLAINTEXT", reading=SimpleNamespace(close=self.close_reading)),
            broker,  # type: ignore[arg-type]
            self.metrics,  # type: ignore[arg-type]
            self.turns,
            self.holdings,
            self.closed.append,
        )

    def close_reading(self) -> None:
        self.readings_closed += 1

    def serve(self, broker: Any, call: Call, frame: memoryview) -> Any:
        self.served.append(call.header.correlation_id)
        return self.answer(call.header.correlation_id)

    def serve_run(
        self, broker: Any, call: Call, frame: memoryview, more: Iterable[memoryview]
    ) -> tuple[Any, int]:
        """Takes all further requests of its key with one answer."""
        header = call.header
        self.runs.append(header.correlation_id)
        headers = itertools.takewhile(
            lambda other: other.key == header.key, map(frames.read_request_header, more)
        )
        ids = [other.correlation_id for other in headers]
        first = self.answer_run(header.correlation_id)
        if isinstance(first, Deferred) or not ids:
            return first, 0
        return [*first, b"".join(map(reply, ids))], len(ids)

    def send(self, *correlation_ids: int, key: int = METADATA) -> None:
        self.client.sendall(b"".join(request(i, key) for i in correlation_ids))
        self.loop.settle()

    def received(self, size: int = 65536) -> bytes:
        return self.client.recv(size)

    def is_silent(self) -> bool:
        self.client.setblocking(False)
        try:
            self.client.recv(1)
        except BlockingIOError:
            return True
        finally:
            self.client.settimeout(5)
        return False


def request(correlation_id: int, key: int = METADATA) -> bytes:
    return frames.frame(struct.pack(">hhih", key, 1, correlation_id, -1), b"\0\0\0\0")


def reply(correlation_id: int, size: int = 4) -> bytes:
    return struct.pack(">ii", size, correlation_id) + bytes(size - 4)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench(monkeypatch)
    yield bench
    bench.connection.close()
    bench.turns.close()
    bench.client.close()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    def reasons() -> list[str]:
        return [
            vars(record)["facts"]["reason"]
            for record in caplog.records
            if record.levelno >= logging.WARNING and record.getMessage() == "connection closed"
        ]

    return reasons


def test_all_requests_of_a_wake_up_are_answered_in_order_with_one_write(bench: Bench) -> None:
    bench.send(1, 2, 3)
    assert bench.received() == reply(1) + reply(2) + reply(3)


def test_requests_that_take_long_are_served_in_turns_so_that_others_have_theirs(bench: Bench) -> None:
    def slowly(correlation_id: int) -> list[bytes]:
        bench.now_s += TURN_S * 0.6
        return [reply(correlation_id)]

    bench.answer = slowly
    bench.client.sendall(b"".join(request(i) for i in range(1, 8)))
    bench.connection.heard(select.EPOLLIN)
    assert bench.connection.turn(bench.now_s + TURN_S)
    assert bench.served == [1, 2]
    assert bench.received() == reply(1) + reply(2), "the replies of a turn leave with it"
    assert bench.connection.turn(bench.now_s + TURN_S)
    assert bench.served == [1, 2, 3, 4]
    assert bench.connection.turn(bench.now_s + TURN_S)
    assert not bench.connection.turn(bench.now_s + TURN_S)
    assert bench.served == [1, 2, 3, 4, 5, 6, 7]
    assert bench.received() == b"".join(map(reply, range(3, 8)))


def test_requests_that_a_handler_serves_together_are_answered_and_counted_each(bench: Bench) -> None:
    sent = [request(1), request(2, PRODUCE), request(3, PRODUCE), request(4, PRODUCE), request(5)]
    bench.client.sendall(b"".join([*sent, request(6, PRODUCE)]))
    bench.loop.turn()
    assert bench.received() == b"".join(map(reply, range(1, 7)))
    assert (bench.runs, bench.served) == ([2, 6], [1, 5])
    assert [key for key, _ in bench.requests] == [METADATA, *[PRODUCE] * 3, METADATA, PRODUCE]


def test_more_requests_than_a_read_brings_are_all_served(bench: Bench) -> None:
    everything = range(20_000)
    bench.answer = lambda correlation_id: None
    sender = threading.Thread(target=bench.client.sendall, args=[b"".join(map(request, everything))])
    sender.start()
    while len(bench.served) < len(everything):
        bench.loop.turn()
    sender.join()
    assert bench.served == list(everything)
    assert bench.is_silent()


def test_a_request_in_two_pieces_is_served_once_it_is_whole(bench: Bench) -> None:
    data = request(1)
    bench.client.sendall(data[:9])
    bench.loop.turn()
    assert bench.served == []
    bench.client.sendall(data[9:])
    bench.loop.turn()
    assert bench.served == [1]


def test_a_reply_that_waits_holds_up_the_next_requests(bench: Bench) -> None:
    parked: Deferred[Any] = Deferred()
    bench.answer = lambda correlation_id: parked if correlation_id == 2 else [reply(correlation_id)]
    bench.send(1, 2, 3)
    assert bench.received() == reply(1)
    assert bench.served == [1, 2]
    assert bench.is_silent()
    parked.complete([reply(2)])
    assert bench.is_silent(), "the reply leaves in a turn of its own"
    bench.loop.turn()
    assert bench.received() == reply(2) + reply(3)


def test_produce_requests_are_served_while_others_of_the_kind_wait_and_answered_in_their_order(
    bench: Bench,
) -> None:
    late: dict[int, Deferred[Any]] = {1: Deferred(), 2: Deferred(), 4: Deferred()}
    bench.answer_run = lambda correlation_id: late.get(correlation_id, [reply(correlation_id)])
    bench.send(1, 2, key=PRODUCE)
    bench.send(3, key=PRODUCE)
    bench.send(4, key=PRODUCE)
    assert bench.runs == [1, 2, 3, 4]
    late[2].complete([reply(2)])
    late[4].complete([reply(4)])
    bench.loop.settle()
    assert bench.is_silent()
    late[1].complete([reply(1)])
    bench.loop.settle()
    assert bench.received() == b"".join(map(reply, (1, 2, 3, 4)))
    assert not bench.connection.is_waiting


def test_behind_a_produce_request_that_waits_no_other_is_served(bench: Bench) -> None:
    late: Deferred[Any] = Deferred()
    bench.answer_run = lambda correlation_id: late if correlation_id == 1 else [reply(correlation_id)]
    bench.send(1, key=PRODUCE)
    bench.send(2, key=METADATA)
    bench.send(3, key=PRODUCE)
    assert (bench.runs, bench.served) == ([1], [])
    late.complete([reply(1)])
    bench.loop.settle()
    assert (bench.runs, bench.served) == ([1, 3], [2])
    assert bench.received() == b"".join(map(reply, (1, 2, 3)))


def test_only_so_many_replies_are_waited_for_at_once(bench: Bench) -> None:
    late = {number: Deferred[Any]() for number in range(PARKED_MAX + 10)}
    bench.answer_run = late.__getitem__
    for number in late:
        bench.send(number, key=PRODUCE)
    assert len(bench.runs) == PARKED_MAX
    for number in range(5):
        late[number].complete([reply(number)])
    bench.loop.settle()
    assert len(bench.runs) == PARKED_MAX + 5
    for number in range(5, PARKED_MAX + 10):
        late[number].complete([reply(number)])
        bench.loop.settle()
    assert bench.received() == b"".join(map(reply, late))


def test_a_bad_request_behind_one_that_waits_closes_once_that_is_answered(bench: Bench) -> None:
    late: Deferred[Any] = Deferred()

    def answer(correlation_id: int) -> Any:
        if correlation_id == 2:
            raise CloseConnectionError("cannot be answered")
        return late

    bench.answer_run = answer
    bench.send(1, 2, 3, key=PRODUCE)
    assert (bench.closed, bench.runs) == ([], [1, 2])
    bench.send(4, key=PRODUCE)
    assert bench.runs == [1, 2]
    late.complete([reply(1)])
    bench.loop.settle()
    assert bench.received() == reply(1)
    assert bench.closed == [bench.connection]


def test_a_client_that_leaves_while_several_of_its_requests_wait_has_all_forgotten(bench: Bench) -> None:
    late = {number: Deferred[Any]() for number in range(3)}
    forgotten: list[int] = []
    for number, deferred in late.items():
        deferred.on_cancel(lambda number=number: forgotten.append(number))  # type: ignore[misc]
    bench.answer_run = late.__getitem__
    bench.send(0, 1, 2, key=PRODUCE)
    bench.client.close()
    bench.loop.settle()
    assert forgotten == [0, 1, 2]
    assert bench.closed == [bench.connection]


def test_while_a_reply_waits_nothing_is_read_and_afterwards_all_is(bench: Bench) -> None:
    parked: Deferred[Any] = Deferred()
    bench.answer = lambda correlation_id: parked if correlation_id == 1 else [reply(correlation_id)]
    bench.send(1)
    bench.send(2)
    bench.send(3)
    assert not bench.loop.soon, "what cannot be read yet must not spin"
    assert bench.served == [1]
    parked.complete([reply(1)])
    bench.loop.settle()
    assert bench.received(4096) == reply(1) + reply(2) + reply(3)


@pytest.mark.parametrize("leaves_first", [True, False])
def test_a_client_that_leaves_behind_a_whole_request_gets_its_work_done(
    bench: Bench, warnings: Callable[[], list[str]], *, leaves_first: bool
) -> None:
    """The end may be told together with the last bytes (once), or after them."""
    bench.client.sendall(request(1) + request(2))
    if not leaves_first:
        bench.loop.turn()
    bench.client.shutdown(socket.SHUT_WR)
    bench.loop.settle()
    assert bench.received() == reply(1) + reply(2)
    assert bench.received() == b""
    assert bench.connection.is_closed
    assert warnings() == []


def test_a_client_that_leaves_right_behind_a_request_that_waits_is_noticed(bench: Bench) -> None:
    parked: Deferred[Any] = Deferred()
    bench.answer = lambda _: parked
    bench.client.sendall(request(1))
    bench.client.close()
    bench.loop.settle()
    assert bench.connection.is_closed


def test_requests_before_a_bad_size_are_answered_first(
    bench: Bench, warnings: Callable[[], list[str]]
) -> None:
    parked: Deferred[Any] = Deferred()
    bench.answer = lambda correlation_id: parked if correlation_id == 2 else [reply(correlation_id)]
    bench.client.sendall(request(1) + request(2) + request(3) + struct.pack(">i", -5))
    bench.loop.settle()
    assert bench.received() == reply(1)
    assert not bench.connection.is_closed
    parked.complete([reply(2)])
    bench.loop.settle()
    assert bench.received() == reply(2) + reply(3)
    assert bench.received() == b""
    assert len(warnings()) == 1


def test_a_client_that_leaves_while_its_request_waits_is_noticed(bench: Bench) -> None:
    parked: Deferred[Any] = Deferred()
    cancelled: list[bool] = []
    parked.on_cancel(lambda: cancelled.append(True))
    bench.answer = lambda _: parked
    bench.send(1)
    bench.client.close()
    bench.loop.turn()
    assert bench.connection.is_closed
    assert cancelled == [True]


def test_an_answer_may_be_there_before_it_is_waited_for(bench: Bench) -> None:
    def answer(correlation_id: int) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        deferred.complete([reply(correlation_id)])
        return deferred

    bench.answer = answer
    bench.send(1, 2)
    assert bench.received() == reply(1) + reply(2)


def test_a_reply_that_came_as_the_broker_stops_still_leaves(bench: Bench) -> None:
    parked: Deferred[Any] = Deferred()
    bench.answer = lambda _: parked
    bench.send(1, 2)
    parked.complete([reply(1)])
    bench.connection.close_after_replies()
    assert bench.received() == reply(1)
    assert bench.received() == b""
    assert bench.served == [1]


def test_no_reply_means_none(bench: Bench) -> None:
    bench.answer = lambda correlation_id: None if correlation_id == 1 else [reply(correlation_id)]
    bench.send(1, 2)
    assert bench.received() == reply(2)


def test_slices_are_sent_from_their_file_between_buffers(bench: Bench, tmp_path: Path) -> None:
    content = bytes(range(256)) * 1000
    file = OsFiles().open(str(tmp_path / "segment"), create=True)
    file.write_at(content, 0)
    bench.answer = lambda _: [
        b"head",
        LogSlice(file, 1000, 200_000),
        b"middle",
        LogSlice(file, 0, 10),
        b"end",
    ]
    bench.send(1)
    expected = b"head" + content[1000:201_000] + b"middle" + content[:10] + b"end"
    received = b""
    while len(received) < len(expected):
        received += bench.received()
        bench.loop.turn()
    assert received == expected


def test_a_slice_of_what_is_cut_meanwhile_closes_the_connection_and_one_before_the_cut_is_sent(
    bench: Bench, tmp_path: Path
) -> None:
    file = OsFiles().open(str(tmp_path / "segment"), create=True)
    file.write_at(bytes(range(100)), 0)
    late: Deferred[Any] = Deferred()
    bench.answer = lambda _: late
    bench.send(1)
    late.complete([b"head", LogSlice(file, 0, 50), LogSlice(file, 50, 50)])
    file.cut_at = 60
    file.write_at(bytes(100), 0)
    bench.loop.settle()
    assert bench.closed == [bench.connection]
    # What is not cut is sent, as it is.
    assert bench.received() == b"head" + bytes(50)


def test_a_client_that_does_not_read_is_served_no_further(bench: Bench) -> None:
    size = REPLY_SIZE_MAX // 4
    bench.answer = lambda correlation_id: [reply(correlation_id, size)]
    bench.send(*range(1, 101))
    for _ in range(20):
        bench.loop.turn()
    assert len(bench.served) <= 4 + 4, "the replies ready, and those in the kernel"
    received = b""
    while len(received) < 100 * (size + 4):
        received += bench.received(1 << 20)
        bench.loop.turn()
    assert [struct.unpack_from(">i", received, i * (size + 4) + 4)[0] for i in range(100)] == list(
        range(1, 101)
    )
    bench.send(7)
    assert bench.received(4) == struct.pack(">i", size)


def test_what_was_answered_before_a_bad_request_is_sent(
    bench: Bench, warnings: Callable[[], list[str]]
) -> None:
    def answer(correlation_id: int) -> Any:
        if correlation_id == 2:
            raise CloseConnectionError("no words for it")
        return [reply(correlation_id)]

    bench.answer = answer
    bench.send(1, 2, 3)
    assert bench.received() == reply(1)
    assert bench.received() == b""
    assert bench.served == [1, 2]
    assert warnings() == ["no words for it"]
    assert bench.closed == [bench.connection]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack(">i", -1), "-1 bytes"),
        (struct.pack(">i", 100_001), "100001 bytes"),
        (request(1, key=999), "999"),
        (request(1, key=HEARTBEAT), "api key 12 version 1 is not served here"),
    ],
)
def test_bad_input_closes_with_one_warning(
    bench: Bench, warnings: Callable[[], list[str]], data: bytes, words: str
) -> None:
    bench.client.sendall(data)
    bench.loop.turn()
    assert bench.received() == b""
    assert len(warnings()) == 1
    assert words in warnings()[0]


def test_a_request_that_memory_does_not_suffice_for_closes_its_connection_once(
    bench: Bench, warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(decoder: frames.FrameDecoder) -> memoryview:
        raise MemoryError

    monkeypatch.setattr(frames.FrameDecoder, "writable", full)
    bench.send(1)
    bench.loop.turn()
    assert bench.connection.is_closed
    assert ["no memory" in reason for reason in warnings()] == [True]


def test_a_handler_that_breaks_closes_its_connection_only(bench: Bench) -> None:
    bench.answer = lambda _: 1 // 0
    bench.send(1)
    assert bench.received() == b""
    assert bench.connection.is_closed


def test_a_client_that_leaves_between_requests_is_no_warning(
    bench: Bench, warnings: Callable[[], list[str]]
) -> None:
    bench.send(1)
    bench.client.close()
    bench.loop.turn()
    assert bench.connection.is_closed
    assert warnings() == []


def test_what_a_client_fetched_is_forgotten_when_it_is_gone(bench: Bench) -> None:
    bench.send(1)
    assert bench.readings_closed == 0
    bench.client.close()
    bench.loop.turn()
    assert bench.readings_closed == 1


def test_a_closed_connection_lets_go_of_its_buffer_but_not_of_what_is_still_answered(bench: Bench) -> None:
    kept: list[memoryview] = []

    def serve(broker: Any, call: Call, frame: memoryview) -> Any:
        kept.append(frame)
        return Deferred()

    table.HANDLERS[METADATA] = Handler(METADATA, "M", 0, 1, APIS[METADATA], serve)
    bench.send(1)
    before = bytes(kept[0])
    bench.connection.close()
    assert bench.connection._decoder.capacity == 0
    assert bytes(kept[0]) == before


def test_a_muted_client_has_its_answer_and_is_served_nothing_more_until_the_mute_is_over(
    bench: Bench,
) -> None:
    def answer(correlation_id: int) -> Any:
        if correlation_id == 1:
            bench.connection._client.mute(250)
        return [reply(correlation_id)]

    bench.answer = answer
    bench.send(1, 2)
    assert bench.received() == reply(1)
    bench.send(3)
    assert bench.served == [1]
    assert bench.connection.is_waiting
    assert bench.metrics.muted_connections == 1
    (timer,) = bench.loop.timers
    assert timer.delay_s == 0.25
    bench.loop.settle()
    assert not bench.loop.soon, "a muted connection keeps nobody busy"
    timer.callback()
    bench.loop.settle()
    assert bench.served == [1, 2, 3]
    assert bench.metrics.muted_connections == 0


def test_receiving_and_sending_count_for_a_client_whose_time_has_a_limit(bench: Bench) -> None:
    share = bench.connection._client.time_share = Share(Rate(Windows()), 50.0)
    transport: Any = bench.connection._transport
    take, give = transport.receive_into, transport._send

    def receive_into(space: memoryview) -> Any:
        bench.now_s += 0.25
        return take(space)

    def send(part: bytes) -> Any:
        bench.now_s += 0.5
        return give(part)

    def answer(correlation_id: int) -> Any:
        bench.now_s += 10
        return [reply(correlation_id)]

    transport.receive_into, transport._send, bench.answer = receive_into, send, answer
    bench.send(1)
    assert bench.received() == reply(1)
    # In percent, over ten windows; what handling takes counts at the gate.
    measured, over_ms = share.bucket.measure(int(bench.now_s * 1000))
    assert measured * over_ms / 1000 == pytest.approx(75)


def test_the_longest_mute_counts(bench: Bench) -> None:
    bench.connection._client.mute(250)
    bench.connection._client.mute(100)
    assert [timer.delay_s for timer in bench.loop.timers if not timer.is_cancelled] == [0.25]
    bench.connection._client.mute(300)
    assert [timer.delay_s for timer in bench.loop.timers if not timer.is_cancelled] == [0.3]
    assert bench.metrics.muted_connections == 1


def test_a_muted_client_that_goes_away_is_let_go(bench: Bench) -> None:
    bench.connection._client.mute(250)
    bench.client.close()
    bench.loop.settle()
    assert bench.closed == [bench.connection]
    assert bench.metrics.muted_connections == 0
    assert bench.loop.timers[0].is_cancelled
