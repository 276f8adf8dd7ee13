"""Lines of an access log: what parses, what is rejected and why, and that nothing of a line is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.events.access_log import LINE_SIZE_MAX, PageView, Rejected, parse

SAMPLE = Path(__file__).parents[4] / "examples" / "access.log"
LINE = (
    b'83.149.9.216 - frank [17/May/2015:10:05:03 +0200] "GET /a?b=c HTTP/1.1" 200 203023 '
    b'"http://example.org/" "Mozilla/5.0 (X11)"\n'
)


def page_view(line: bytes) -> PageView:
    parsed = parse(line)
    assert isinstance(parsed, PageView), parsed
    return parsed


def test_every_field_of_a_line_is_read() -> None:
    assert page_view(LINE) == PageView(
        address="83.149.9.216",
        user="frank",
        method="GET",
        path="/a?b=c",
        protocol="HTTP/1.1",
        status=200,
        size=203023,
        referrer="http://example.org/",
        agent="Mozilla/5.0 (X11)",
        logged_at=1431849903000,
    )


def test_the_sample_parses_but_for_its_one_cut_line() -> None:
    parsed = [parse(line) for line in SAMPLE.read_bytes().splitlines()]
    assert len(parsed) == 10_000
    assert [entry for entry in parsed if isinstance(entry, Rejected)] == [
        Rejected("not in combined log format")
    ]


def test_a_dash_is_nothing() -> None:
    view = page_view(b'::1 - - [17/May/2015:10:05:03 -0130] "GET / HTTP/2.0" 304 - "-" "-"')
    assert (view.address, view.user, view.size, view.referrer, view.agent) == ("::1", None, None, None, None)
    assert view.logged_at == 1431862503000


def test_escaped_quotes_are_unescaped_and_other_escapes_stay() -> None:
    view = page_view(rb'h - - [17/May/2015:10:05:03 +0000] "GET /a\"b HTTP/1.1" 200 1 "-" "a \"q\" \\ \x16"')
    assert view.path == '/a"b'
    assert view.agent == r'a "q" \\ \x16'


def test_unicode_is_kept_and_bytes_that_are_not_utf8_are_written_as_apache_writes_them() -> None:
    view = page_view(
        'h - - [17/May/2015:10:05:03 +0000] "GET /café/日本 HTTP/1.1" 200 1 "-" "'.encode() + b'\xff\xfe"'
    )
    assert (view.path, view.agent) == ("/café/日本", r"\xff\xfe")


@pytest.mark.parametrize("request_line", ["-", r"\x16\x03\x01", "GET /", "", "GET  HTTP/1.1", "a b c"])
def test_a_request_of_another_form_is_kept_whole_in_path(request_line: str) -> None:
    view = page_view(f'h - - [17/May/2015:10:05:03 +0000] "{request_line}" 400 0 "-" "-"'.encode())
    assert (view.method, view.path, view.protocol) == (None, request_line, None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "empty line"),
        (b"  \r\n", "empty line"),
        (b"garbage", "not in combined log format"),
        (LINE[:-10], "not in combined log format"),
        (LINE.replace(b"May", b"Mai"), "time is not DD/Mon/YYYY:hh:mm:ss +hhmm"),
        (LINE.replace(b"17/", b"32/"), "time is not DD/Mon/YYYY:hh:mm:ss +hhmm"),
        (LINE.replace(b"+0200", b"+9900"), "time is not DD/Mon/YYYY:hh:mm:ss +hhmm"),
        (LINE.replace(b" 200 ", b" 20x "), "status is not three digits"),
        (LINE.replace(b"203023", b"20k"), "size is neither a number nor -"),
        (LINE.replace(b"203023", b"9" * 19), "size is neither a number nor -"),
        (LINE.replace(b"/a?b=c", b"/" + b"a" * LINE_SIZE_MAX), f"longer than {LINE_SIZE_MAX} bytes"),
    ],
)
def test_a_line_that_does_not_parse_is_rejected_with_its_reason(line: bytes, reason: str) -> None:
    assert parse(line) == Rejected(reason)


def test_a_long_line_within_the_bound_parses() -> None:
    path = b"/" + b"a" * 150_000
    assert page_view(LINE.replace(b"/a?b=c", path)).path == path.decode()


@pytest.mark.timeout(10)
@pytest.mark.parametrize("piece", [b"(", b'"', b"\\", b"a ", b" [", b'" "', b"]", b'a" '])
def test_hostile_lines_are_rejected_without_backtracking(piece: bytes) -> None:
    head = b'1 2 3 [17/May/2015:10:05:03 +0000] "'
    for line in (
        piece * (LINE_SIZE_MAX // len(piece)),
        head + piece * ((LINE_SIZE_MAX - len(head)) // len(piece)),
    ):
        assert isinstance(parse(line), Rejected)


@given(st.binary(max_size=300))
def test_any_bytes_give_an_answer(line: bytes) -> None:
    assert isinstance(parse(line), PageView | Rejected)


@given(st.text(st.characters(exclude_characters='"\\\n\r', exclude_categories=["Cs"]), max_size=50))
def test_any_agent_text_comes_through(agent: str) -> None:
    view = page_view(f'h - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "{agent}"'.encode())
    assert view.agent == (None if agent in ("-", "") else agent)
