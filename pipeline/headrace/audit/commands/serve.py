"""`headrace audit serve`: the audit as a page that follows what happens, for as long as somebody looks. Wiring only."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from dataclasses import replace
from typing import Final

import click

from headrace.audit.acceptance_log import AcceptanceLog, NotKeptError
from headrace.audit.acceptances import to_accept, to_reopen
from headrace.audit.auditor import Auditor
from headrace.audit.commands.options import RETRY_SECONDS
from headrace.audit.commands.watch import (
    READ_FAILURES,
    REPORTED_MS,
    OpenAuditor,
    reader_options,
)
from headrace.audit.latency import SPANS
from headrace.audit.outcome import Finding
from headrace.audit.page.live import Rates, View, producers_by_place
from headrace.audit.page.live_app import Accepting, Board, build_app
from headrace.audit.period import END_MS, Period
from headrace.audit.report import as_json
from headrace.broker.moment import now_ms
from headrace.broker.structured_log import configure, get_logger
from headrace.registry.entrance import Entrance, entrance_options
from headrace.registry.listening import ListenAddress, Server, listen

LOOK_S: Final = 1.0
"""How often the auditor's thread sees whether it shall end."""

logger = get_logger(__name__)


@click.command()
@reader_options
@click.option(
    "--listen",
    "listen_at",
    type=ListenAddress(),
    default="127.0.0.1:8090",
    show_default=True,
    help="Where to serve the page. It asks nobody who they are: beyond this machine, put a proxy before it that does.",
)
@click.option(
    "--interval",
    default=5.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds between rounds.",
)
@click.option(
    "--allow-accept",
    is_flag=True,
    help="Let whoever sees the page accept findings, and open them again, by the name that they give.",
)
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="With --allow-accept: the page's scheme, name and port behind a proxy, such as https://audit.example; may be given "
    "several times.",
)
@entrance_options
def serve(
    opened: OpenAuditor,
    silent_after_seconds: float,
    listen_at: tuple[str, int],
    interval: float,
    allow_accept: bool,
    origins: tuple[str, ...],
    entrance: Entrance,
) -> None:
    """Serve the audit of the last 24 hours as a page that follows what happens.

    With the --state of `audit watch` the first round is short. Nothing is read while nobody looks. Prints `serving URL` once it
    listens.

    Example: headrace audit serve --bootstrap 127.0.3.1:9092 --warehouse var/warehouse --state var/audit
    """
    configure()
    if origins and not allow_accept:
        raise click.UsageError("--origin is for --allow-accept: name both, or neither.")
    opened.check_warehouses()
    work = Work(opened, silent_after_seconds, interval)
    asyncio.run(_serve(listen_at, work, Accepting(work.say, origins) if allow_accept else None, entrance))


class Work:
    """The auditor's rounds, in a thread of their own."""

    def __init__(self, opened: OpenAuditor, silent_after_seconds: float, interval_s: float) -> None:
        self._opened = opened
        self._silent_after_seconds = silent_after_seconds
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._rates = Rates()
        self._auditor: Auditor | None = None
        self._findings: list[Finding] = []

    def run(self, board: Board) -> None:
        """Work while somebody looks, until `end`."""
        view = View()
        while not self._stop.is_set():
            if not board.wanted.wait(LOOK_S):
                continue
            try:
                view = self._round(view.number + 1)
            except (click.ClickException, *READ_FAILURES) as error:
                trouble = error.message if isinstance(error, click.ClickException) else str(error)
                logger.warning("round incomplete", reason=trouble)
                view = replace(view, number=view.number + 1, trouble=f"{trouble.rstrip('.')}. Trying again.")
                self._stop.wait(RETRY_SECONDS)
            board.put_up(view)
            board.hurried.wait(self._interval_s)
            board.hurried.clear()

    def end(self) -> None:
        """Let the round in progress be the last."""
        self._stop.set()

    def say(self, verb: str, name: str, by: str, reason: str) -> str:
        """Accept a finding of the last round, or open it again; returns why not, without a full stop. In any thread."""
        if self._auditor is None:
            return "Nothing is known yet: wait for the first round"
        known = self._auditor.ledger.acceptances
        try:
            if verb == "accept":
                items = to_accept([name], self._findings, known, by, reason, now_ms())
            else:
                items = to_reopen([name], known, by, reason, now_ms())
            AcceptanceLog(self._auditor.bootstrap).append(items)
        except (ValueError, NotKeptError) as error:
            logger.warning("refused", verb=verb, id=name, by=by, reason=error)
            return str(error)
        logger.info("said by a viewer", verb=verb, id=name, by=by, reason=reason)
        return ""

    def _round(self, number: int) -> View:
        if self._auditor is None:
            opened = self._opened()
            opened.read_settled(Period(now_ms() - REPORTED_MS, END_MS))
            self._auditor = opened
        auditor = self._auditor
        auditor.update(now_ms())
        # What is settled here is written by nobody: `audit watch` settles it, too.
        auditor.settle(now_ms(), self._silent_after_seconds)
        now = now_ms()
        outcome = auditor.outcome(now, self._silent_after_seconds, Period(now - REPORTED_MS, END_MS))
        report = as_json(outcome, auditor.ledger, now)
        self._findings = outcome.findings
        report["events_per_second"] = self._rates.observe(report, time.monotonic())
        return View(
            number=number,
            at_ms=now,
            report=report,
            minutes={span: auditor.ledger.latencies.recent.minutes(span) for span in SPANS},
            producers=producers_by_place(auditor.ledger.producers.values()),
            trouble=auditor.hindrance,
        )


async def _serve(
    listen_at: tuple[str, int], work: Work, accepting: Accepting | None, entrance: Entrance
) -> None:
    listener = listen(listen_at)
    board = Board()
    app = entrance.guarded(build_app(board, accepting), open_paths=["/live"])
    server = Server(app, entrance, shutdown_seconds=5)

    def stop() -> None:
        board.end()
        work.end()
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    host, port = listener.getsockname()[:2]
    click.echo(f"serving {entrance.scheme}://{f'[{host}]' if ':' in host else host}:{port}/")
    sys.stdout.flush()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.to_thread(work.run, board))
        await server.serve(sockets=[listener])
        stop()
