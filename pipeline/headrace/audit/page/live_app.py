"""The live page over HTTP: the page, its parts as server-sent events, the report as JSON, and probes.

Owns who looks. The auditor works in a thread of its own and only while somebody does; `Board` is what passes between them.
Invariants: at most `VIEWERS_MAX` look at once; a viewer is sent a part only when it changed. Nothing of another address is used.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace.audit.page.live import Query, View, name_of, page, parts

VIEWERS_MAX: Final = 32
SILENCE_S_MAX: Final = 10.0
"""How long a viewer hears nothing at most; so one that has gone is found out."""
FIRST_S_MAX: Final = 0.5
"""How long the page waits for the first round."""
FRESH_S_MAX: Final = 60.0
"""How long report.json waits for a round."""
VERBS: Final = ("accept", "reopen")
SAID_SIZE_MAX: Final = 16_384
ASSETS: Final = {"page.css": "text/css", "live.js": "text/javascript"}
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Accepting(NamedTuple):
    """Lets viewers accept findings. `call` gets a verb, an id, who says so and why; it returns why not, or nothing.

    `origins` are the addresses of the page, as browsers see it behind a proxy; without any it is where it is asked for, by an
    IP address or as localhost, so that no other name can be pointed here.
    """

    call: Callable[[str, str, str, str], str]
    origins: Collection[str] = ()

    def is_of(self, headers: Mapping[str, str]) -> bool:
        """Whether a request was made by the page itself."""
        origin = headers.get("origin", "")
        if self.origins:
            return origin in self.origins
        asked = urlsplit(origin)
        return (
            bool(asked.netloc) and asked.netloc == headers.get("host") and _is_own_name(asked.hostname or "")
        )


def _is_own_name(host: str) -> bool:
    try:
        return host == "localhost" or bool(ip_address(host))
    except ValueError:
        return False


class Board:
    """The last view, which the auditor's thread puts up and viewers on the event loop wait for. Made on that loop."""

    def __init__(self) -> None:
        self.view = View()
        self.wanted = threading.Event()
        """Set while somebody looks, for the auditor's thread."""
        self.loop = asyncio.get_running_loop()
        self.hurried = threading.Event()
        """Set when the next round shall not wait."""
        self._moved = asyncio.Event()
        self._viewers = 0
        self.is_over = False

    def put_up(self, view: View) -> None:
        """Show this from now on; called in the auditor's thread."""
        self.loop.call_soon_threadsafe(self._show, view)

    def end(self) -> None:
        """Let every viewer go."""
        self.is_over = True
        self.hurried.set()
        self._wake()

    @property
    def has_room(self) -> bool:
        return self._viewers < VIEWERS_MAX

    @contextmanager
    def looking(self) -> Iterator[None]:
        """While somebody looks."""
        self._viewers += 1
        self.wanted.set()
        try:
            yield
        finally:
            self._viewers -= 1
            if not self._viewers:
                self.wanted.clear()

    async def after(self, number: int, seconds_max: float) -> View:
        """Wait for a view later than that one, so long; returns what there is then."""
        try:
            async with asyncio.timeout(seconds_max):
                while self.view.number <= number and not self.is_over:
                    await self._moved.wait()
        except TimeoutError:
            pass
        return self.view

    def _show(self, view: View) -> None:
        self.view = view
        self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


def build_app(board: Board, accepting: Accepting | None = None) -> Starlette:
    """Return the application over a board that its caller feeds; it takes no acceptance unless it is told how."""

    async def index(request: Request) -> Response:
        with board.looking():
            view = await board.after(0, FIRST_S_MAX)
        text = await asyncio.to_thread(
            page, view, Query.of(request.query_params), may_accept=accepting is not None
        )
        return Response(text, media_type="text/html", headers=HEADERS)

    async def events(request: Request) -> Response:
        if not board.has_room:
            return PlainTextResponse(f"{VIEWERS_MAX} look already; close one of these pages.\n", 503)
        query = Query.of(request.query_params)
        has = request.query_params.get("has", "")
        return StreamingResponse(
            _changes(board, query, has, may_accept=accepting is not None),
            media_type="text/event-stream",
            headers=HEADERS,
        )

    async def report(_: Request) -> Response:
        with board.looking():
            view = await board.after(board.view.number, FRESH_S_MAX)
        if view.report is None:
            why = view.trouble or "the first round has not ended"
            return PlainTextResponse(f"There is no report yet: {why}\n", 503)
        return JSONResponse(view.report, headers=HEADERS)

    async def say(request: Request) -> Response:
        verb = request.url.path.rpartition("/")[2]
        refused = await _refusal(request, accepting, verb)
        if refused is None:
            board.hurried.set()
            return Response(status_code=204, headers=HEADERS)
        status, sentence = refused
        return PlainTextResponse(f"{sentence}.\n", status, headers=HEADERS)

    async def asset(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        content = files("headrace.audit.page").joinpath(name).read_bytes()
        return Response(content, media_type=ASSETS[name], headers=HEADERS)

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    routes = [
        Route("/", index),
        Route("/events", events),
        Route("/report.json", report),
        Route("/live", live),
        *(Route(f"/{verb}", say, methods=["POST"]) for verb in VERBS),
    ]
    return Starlette(routes=[*routes, *(Route(f"/{name}", asset) for name in ASSETS)])


async def _refusal(request: Request, accepting: Accepting | None, verb: str) -> tuple[int, str] | None:
    """Do what a viewer says; returns status and sentence where it cannot be done."""
    if accepting is None:
        return (
            403,
            "This page accepts nothing: start `headrace audit serve` with --allow-accept, or use `headrace audit accept`",
        )
    if not accepting.is_of(request.headers):
        return (
            403,
            "This does not come from the page itself; behind a proxy, name the page's address with --origin",
        )
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return 415, "Say it as application/json"
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > SAID_SIZE_MAX:
            return 413, f"That is more than {SAID_SIZE_MAX} bytes"
    try:
        fields = json.loads(body)
        name, by, reason = (fields[key] for key in ("id", "by", "reason"))
        if not all(isinstance(value, str) for value in (name, by, reason)):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        return 400, "Say `id`, `by` and `reason`, each a text"
    why_not = await asyncio.to_thread(accepting.call, verb, name, by, reason)
    return (409, why_not) if why_not else None


async def _changes(board: Board, query: Query, has: str, *, may_accept: bool) -> AsyncIterator[str]:
    """Yield the parts as they change, for as long as this viewer looks; `has` is the view that the viewer's page was made of."""
    sent: dict[str, str] = {}
    with board.looking():
        number = -1
        while not board.is_over:
            view = board.view
            if view.number > number:
                found = await asyncio.to_thread(parts, view, query, may_accept=may_accept)
                if name_of(view) == has:
                    sent = found
                changed = {name: html for name, html in found.items() if sent.get(name) != html}
                sent, number = found, view.number
                if changed:
                    yield _event("parts", json.dumps(changed))
            if view.at_ms:
                yield _event("round", datetime.fromtimestamp(view.at_ms / 1000, UTC).isoformat())
            else:
                yield ": nothing yet\n\n"
            await board.after(number, SILENCE_S_MAX)


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"
