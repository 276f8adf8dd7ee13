"""Frames that are no requests: both kinds of broker close the connection."""

from __future__ import annotations

import struct

import pytest
from frame_corpus import corpus
from sessions import API_VERSIONS, CLOSED, FETCH, METADATA, PRODUCE, Pair, Session, raw_frame

from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

# Kafka decodes these, but its answer does not fit a string: it never answers, or says UNKNOWN_SERVER_ERROR.
KAFKA_FAILS = (
    "produce-v3-name-that-grows",
    "metadata-v4-name-that-grows",
    "describe-configs-v1-longest-name",
    "alter-configs-v1-longest-name",
    "create-topics-v2-longest-name",
    "create-partitions-v2-longest-name",
)
HEADER = frames.encode_request_header(METADATA, 4, 7, "script")


def _metadata(body: bytes) -> bytes:
    return raw_frame(HEADER + body)


BAD_FRAMES = {
    "negative size": raw_frame(b"", -1),
    "smallest size": raw_frame(b"", -(1 << 31)),
    "larger than socket.request.max.bytes": raw_frame(b"x" * 100, 1_000_001),
    "largest size": raw_frame(b"", (1 << 31) - 1),
    "empty frame": raw_frame(b""),
    "one byte": raw_frame(b"\0"),
    "header cut": raw_frame(HEADER[:6]),
    "unknown key": raw_frame(struct.pack(">hhih", 999, 0, 7, -1)),
    "negative key": raw_frame(struct.pack(">hhih", -5, 0, 7, -1)),
    "unsupported version": raw_frame(struct.pack(">hhih", METADATA, 77, 7, -1)),
    "negative version": raw_frame(struct.pack(">hhih", METADATA, -1, 7, -1)),
    "no body": raw_frame(HEADER),
    "array longer than the frame": _metadata(struct.pack(">i", 1000)),
    "huge array": _metadata(struct.pack(">i", (1 << 31) - 1)),
    "array length below -1": _metadata(struct.pack(">i", -2)),
    "string longer than the frame": _metadata(struct.pack(">ih", 1, 500) + b"abc"),
    "null topic name": _metadata(struct.pack(">ihb", 1, -1, 0)),
    "client id longer than the frame": raw_frame(struct.pack(">hhih", METADATA, 4, 7, 1000) + b"abc"),
    "a client's fetch of version 3": raw_frame(struct.pack(">hhih", FETCH, 99, 7, -1)),
    "produce cut in the middle": raw_frame(
        frames.encode_request_header(PRODUCE, 8, 7, "script") + struct.pack(">hhii", -1, 1, 1000, 1)
    ),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_the_connection_is_closed(pair: Pair, name: str) -> None:
    def script(session: Session) -> None:
        bystander = session.another()
        bystander.look(API_VERSIONS, 0, {})
        session.send_frame(BAD_FRAMES[name], METADATA, 4, note=name)
        session.note("a bystander is served", bystander.look(API_VERSIONS, 0, {})["error_code"])
        bystander.close()

    assert pair.compare(script)[0][1] == CLOSED


def test_what_follows_the_body_is_ignored(pair: Pair) -> None:
    def script(session: Session) -> None:
        body = APIS[METADATA].encode_request(4, {"topics": [], "allow_auto_topic_creation": False})
        session.send_frame(_metadata(body + b"more"), METADATA, 4)

    pair.compare(script)


def test_bytes_that_are_no_utf_8(pair: Pair) -> None:
    def script(session: Session) -> None:
        session.send_frame(_metadata(struct.pack(">ih", 1, 3) + b"\xff\xfea" + b"\0"), METADATA, 4)

    pair.compare(script)


def test_requests_before_a_bad_frame_are_answered(pair: Pair) -> None:
    def script(session: Session) -> None:
        good = session.frame(METADATA, 4, {"topics": [], "allow_auto_topic_creation": False})
        session.send_only(good + raw_frame(b"", -1))
        session.next_answer(METADATA, 4, note="the good one")
        session.next_answer(METADATA, 4, note="the bad one")

    pair.compare(script)


def test_frames_that_once_broke_something(pair: Pair) -> None:
    def script(session: Session) -> None:
        for name, _, data in corpus():
            if name in KAFKA_FAILS:
                continue
            header = frames.read_request_header(data)
            session.send_frame(raw_frame(data), header.key, header.version, note=name)

    pair.compare(script)
