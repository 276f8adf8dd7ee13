"""The live page over HTTP: the page, its parts as server-sent events, the report as JSON, and probes.

Owns who looks. The auditor works in a thread of its own and only while somebody does; `Board` is what passes between them.
Invariants: at most `VIEWERS_MAX` look at once; a viewer is sent a part only when it changed. Nothing of another address is used.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace.audit.live import Query, View, page, parts

VIEWERS_MAX: Final = 32
SILENCE_S_MAX: Final = 10.0
"""How long a viewer hears nothing at most; so one that has gone is found out."""
FIRST_S_MAX: Final = 0.5
"""How long the page waits for the first round."""
FRESH_S_MAX: Final = 60.0
"""How long report.json waits for a round."""
ASSETS: Final = {"page.css": "text/css", "live.js": "text/javascript"}
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Board:
    """The last view, which the auditor's thread puts up and viewers on the event loop wait for. Made on that loop."""

    def __init__(self) -> None:
        self.view = View()
        self.wanted = threading.Event()
        """Set while somebody looks, for the auditor's thread."""
        self.loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        self._viewers = 0
        self.is_over = False

    def put_up(self, view: View) -> None:
        """Show this from now on; called in the auditor's thread."""
        self.loop.call_soon_threadsafe(self._show, view)

    def end(self) -> None:
        """Let every viewer go."""
        self.is_over = True
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


def build_app(board: Board) -> Starlette:
    """Return the application over a board that its caller feeds."""

    async def index(request: Request) -> Response:
        with board.looking():
            view = await board.after(0, FIRST_S_MAX)
        text = await asyncio.to_thread(page, view, Query.of(request.query_params))
        return Response(text, media_type="text/html", headers=HEADERS)

    async def events(request: Request) -> Response:
        if not board.has_room:
            return PlainTextResponse(f"{VIEWERS_MAX} look already; close one of these pages.\n", 503)
        query = Query.of(request.query_params)
        return StreamingResponse(_changes(board, query), media_type="text/event-stream", headers=HEADERS)

    async def report(_: Request) -> Response:
        with board.looking():
            view = await board.after(board.view.number, FRESH_S_MAX)
        if view.report is None:
            why = view.trouble or "the first round has not ended"
            return PlainTextResponse(f"There is no report yet: {why}\n", 503)
        return JSONResponse(view.report, headers=HEADERS)

    async def asset(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        content = files("headrace.audit").joinpath(name).read_bytes()
        return Response(content, media_type=ASSETS[name], headers=HEADERS)

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    routes = [
        Route("/", index),
        Route("/events", events),
        Route("/report.json", report),
        Route("/live", live),
    ]
    return Starlette(routes=[*routes, *(Route(f"/{name}", asset) for name in ASSETS)])


async def _changes(board: Board, query: Query) -> AsyncIterator[str]:
    """Yield the parts as they change, for as long as this viewer looks."""
    sent: dict[str, str] = {}
    with board.looking():
        number = -1
        while not board.is_over:
            view = board.view
            if view.number > number:
                found = await asyncio.to_thread(parts, view, query)
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
