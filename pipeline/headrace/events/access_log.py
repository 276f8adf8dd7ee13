r"""Lines of a web server's access log in Apache's combined format, as page views.

A line is bytes in and a `PageView` or a `Rejected` out; nothing raises and nothing is lost: `\"` becomes `"`,
every other escape stays as the server wrote it, and a byte that is not UTF-8 is written the way Apache itself
writes it, `\xhh`.
https://httpd.apache.org/docs/2.4/mod/mod_log_config.html#formats
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Final, NamedTuple

# Each byte may become four (`\xhh`), and a broker accepts messages of 1 MiB by default.
LINE_SIZE_MAX: Final = 192 * 1024

_QUOTED: Final = rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_LINE: Final = re.compile(
    rb"(\S++) (\S++) ([^\[]*?) \[([^\]]*+)\] "
    + _QUOTED
    + rb" (\S++) (\S++) "
    + _QUOTED
    + rb" "
    + _QUOTED
    + rb"\s*+",
    re.DOTALL,
)
_TIME: Final = re.compile(rb"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)")
_REQUEST: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (\S.*) (HTTP/\d+(?:\.\d+)?)", re.DOTALL)
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"),
        start=1,
    )
}


class PageView(NamedTuple):
    """One parsed line; the field names are those of `page_view.avsc`. `logged_at` is in milliseconds."""

    address: str
    user: str | None
    method: str | None
    path: str
    protocol: str | None
    status: int
    size: int | None
    referrer: str | None
    agent: str | None
    logged_at: int

    def as_record(self) -> dict[str, Any]:
        """Return the fields for the Avro writer, without the header."""
        return self._asdict()


class Rejected(NamedTuple):
    """Why a line is no page view, as a short clause without the line itself."""

    reason: str


def parse(line: bytes) -> PageView | Rejected:
    """Parse one line, with or without its line end."""
    if len(line) > LINE_SIZE_MAX:
        return Rejected(f"longer than {LINE_SIZE_MAX} bytes")
    line = line.rstrip(b"\r\n")
    if not line.strip():
        return Rejected("empty line")
    match = _LINE.fullmatch(line)
    if match is None:
        return Rejected("not in combined log format")
    address, _, user, time, request, status, size, referrer, agent = match.groups()
    logged_at = _milliseconds(time)
    if logged_at is None:
        return Rejected("time is not DD/Mon/YYYY:hh:mm:ss +hhmm")
    if not (len(status) == 3 and status.isdigit()):
        return Rejected("status is not three digits")
    if size != b"-" and not (size.isdigit() and len(size) <= 18):
        return Rejected("size is neither a number nor -")
    method, path, protocol = _request(_text(request))
    return PageView(
        _text(address),
        _optional(user),
        method,
        path,
        protocol,
        int(status),
        None if size == b"-" else int(size),
        _optional(referrer),
        _optional(agent),
        logged_at,
    )


def _request(request: str) -> tuple[str | None, str, str | None]:
    match = _REQUEST.fullmatch(request)
    if match is None:
        return None, request, None
    method, path, protocol = match.groups()
    return method, path, protocol


def _optional(field: bytes) -> str | None:
    return None if field in (b"-", b"") else _text(field)


def _text(field: bytes) -> str:
    text = field.decode("utf-8", "backslashreplace")
    return text.replace('\\"', '"') if "\\" in text else text


@lru_cache(maxsize=1024)
def _milliseconds(text: bytes) -> int | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    day, month, year, hour, minute, second, sign, zone_hours, zone_minutes = match.groups()
    offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes))
    try:
        zone = timezone(-offset if sign == b"-" else offset)
        moment = datetime(
            int(year), _MONTHS[month], int(day), int(hour), int(minute), int(second), tzinfo=zone
        )
    except (KeyError, ValueError):
        return None
    return int(moment.timestamp()) * 1000
