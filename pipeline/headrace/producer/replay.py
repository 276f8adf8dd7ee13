"""`headrace replay`: publishes a web server's access log as page views, as a front end would.

An event's time and its record's timestamp are the moment of publishing; the line's own time is `logged_at`. The log is
replayed until enough lines that parse were published. Each line that does not parse is published once, during the first
pass, to the topic's dead-letter topic; that pass always reads the whole log, so that no such line is missed.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.bootstrap_option import (
    bootstrap_option,
    given_properties,
    require_entrance,
)
from headrace.events.access_log import PageView, parse
from headrace.events.avro_schemas import REJECTED_SUFFIX, schema_text
from headrace.events.registry_address import RegistryAddress
from headrace.events.registry_option import registry_option
from headrace.producer.client import Producer
from headrace.producer.log_lines import KEPT_SIZE_MAX, LogLine, read_lines
from headrace.producer.registration import RegistrationError

_PROGRESS_EVERY: Final = 100
_PROGRESS_LINE_SECONDS: Final = 1.0
_PACE_SECONDS_MAX: Final = 0.05
_GZIP_MAGIC: Final = b"\x1f\x8b"


class NothingToReplayError(Exception):
    """A log without one line that parses."""


@dataclass(slots=True)
class Replayed:
    """What a replay handed to the producer; `rejected` counts lines by reason."""

    published: int = 0
    passes: int = 0
    rejected: dict[str, int] = field(default_factory=dict)


def require_page_view(log: Path) -> None:
    """Return when the log has a line that parses; raises NothingToReplayError with a sentence otherwise."""
    if log.exists() and not log.is_file():
        raise NothingToReplayError(f"{log} is no regular file, which a replay reads more than once.")
    with log.open("rb") as file:
        is_packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        file.seek(0)
        count = 0
        for line in read_lines(file):
            if isinstance(parse(line.head), PageView):
                return
            count += 1
    content = f"none of its {count} lines is in combined log format" if count else "it is empty"
    if is_packed:
        content = "it is packed with gzip, so unpack it first"
    raise NothingToReplayError(f"{log} has nothing to replay: {content}.")


def page_views(
    log: Path, replayed: Replayed, on_rejected: Callable[[LogLine, str], None], count: int
) -> Iterator[PageView]:
    """Yield `count` page views from as many passes over the log as it takes, at least one whole pass."""
    while replayed.published < count:
        found = False
        with log.open("rb") as file:
            for line in read_lines(file):
                parsed = parse(line.head)
                if isinstance(parsed, PageView):
                    found = True
                    if replayed.published < count:
                        replayed.published += 1
                        yield parsed
                elif not replayed.passes:
                    replayed.rejected[parsed.reason] = replayed.rejected.get(parsed.reason, 0) + 1
                    on_rejected(line, parsed.reason)
                if replayed.passes and replayed.published >= count:
                    return
        replayed.passes += 1
        if not found:
            return


def rejected_record(line: LogLine, reason: str) -> dict[str, Any]:
    """Return the dead-letter topic's record for a line, without its header."""
    return {"reason": reason, "line": line.head[:KEPT_SIZE_MAX], "size": line.size, "sha256": line.sha256}


class Pace:
    """Sleeps so that no more than `rate` events per second pass; 0 is no limit."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._begin = time.monotonic()
        self._count = 0

    def wait(self, stopped: Callable[[], bool]) -> None:
        self._count += 1
        if not self._rate:
            return
        due = self._begin + self._count / self._rate
        while (left := due - time.monotonic()) > 0 and not stopped():
            time.sleep(min(left, _PACE_SECONDS_MAX))


@click.command(
    epilog="Example: headrace replay --log access.log --events 10000 --bootstrap 127.0.0.1:9092 "
    "--registry http://127.0.0.1:8081 --datacenter dc-east"
)
@click.option(
    "--log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Access log in combined format.",
)
@click.option("--check", is_flag=True, help="Only test that the log has a line that parses; publish nothing.")
@click.option(
    "--events", type=click.IntRange(min=1), default=10_000, show_default=True, help="Page views to publish."
)
@click.option(
    "--rate", type=click.FloatRange(min=0), default=0.0, help="Page views a second at most; 0 is no limit."
)
@bootstrap_option("Brokers to publish to.", required=False)
@registry_option("Schema registry.", required=False)
@click.option(
    "--topic", default="pageviews", show_default=True, help="Topic; rejected lines go to TOPIC.rejected."
)
@click.option("--datacenter", default="local", show_default=True, help="Name of this datacenter.")
@click.option("--server", default="web-1", show_default=True, help="Server named in each event.")
@click.option("--service", default="web", show_default=True, help="Service named in each event.")
@click.option(
    "--window",
    "window_seconds",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Seconds of a monitoring window.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting of librdkafka, such as linger.ms=20.",
)
@click.option(
    "--progress",
    "progress_lines",
    is_flag=True,
    help="Print a line of progress each second, without a terminal too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def replay(
    log: Path,
    check: bool,
    events: int,
    rate: float,
    bootstrap: Bootstrap | None,
    registry: RegistryAddress | None,
    topic: str,
    datacenter: str,
    server: str,
    service: str,
    window_seconds: int,
    settings: tuple[str, ...],
    progress_lines: bool,
    as_json: bool,
) -> None:
    """Publish a web server's access log as page views, replaying it as often as needed.

    Exit 0 when every event was acknowledged, 1 when not or when the log has no line that parses. SIGTERM ends the
    replay early and cleanly, with exit 1.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        require_page_view(log)
    except (NothingToReplayError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if check:
        return
    if not bootstrap or not registry:
        raise click.UsageError(
            "--bootstrap and --registry are needed to publish (only --check goes without)."
        )
    require_entrance(bootstrap)
    try:
        producer = Producer(
            bootstrap=bootstrap.servers,
            registry_url=registry.urls,
            schemas={topic: schema_text("page_view"), topic + REJECTED_SUFFIX: schema_text("rejected_line")},
            server=server,
            service=service,
            datacenter=datacenter,
            window_size_ms=window_seconds * 1000,
            # A front end would rather wait for a broker that restarts than give an event up.
            security=given_properties(click.get_current_context()),
            client_config={"delivery.timeout.ms": 600_000, "linger.ms": 20, **_settings(settings)},
        )
    except (RegistrationError, ValueError) as error:
        raise click.ClickException(f"{str(error).rstrip('.')}.") from error
    begin = time.monotonic()
    with _progress(topic, events, progress_lines) as show:
        replayed, interrupted = _publish(producer, log, topic, events, rate, show)
    _report(producer, replayed, topic, events, time.monotonic() - begin, interrupted, as_json)


def _publish(
    producer: Producer, log: Path, topic: str, events: int, rate: float, show: Callable[[int], None]
) -> tuple[Replayed, bool]:
    """Publish until enough or told to stop, then close the producer; return what was published and whether stopped."""
    stops: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stops.append(received))
    replayed = Replayed()
    while not stops and not producer.wait_until_opened(seconds_max=_PACE_SECONDS_MAX):
        pass
    pace = Pace(rate)

    def on_rejected(line: LogLine, reason: str) -> None:
        producer.send(topic + REJECTED_SUFFIX, rejected_record(line, reason))

    for view in page_views(log, replayed, on_rejected, events):
        pace.wait(lambda: bool(stops))
        if stops:
            replayed.published -= 1
            break
        producer.send(topic, view.as_record())
        if replayed.published % _PROGRESS_EVERY == 0:
            show(replayed.published)
    show(replayed.published)
    producer.close(seconds_max=30.0 if stops else 630.0)
    return replayed, bool(stops)


def _report(
    producer: Producer,
    replayed: Replayed,
    topic: str,
    events: int,
    seconds: float,
    interrupted: bool,
    as_json: bool,
) -> None:
    counts = producer.counts()[topic]
    rejects = producer.counts()[topic + REJECTED_SUFFIX]
    result = {
        "topic": topic,
        "producer": producer.producer_id,
        "published": replayed.published,
        "acknowledged": counts.acknowledged,
        "failed": counts.failed,
        "unknown": counts.unknown,
        "reasons": counts.reasons,
        "rejected": sum(replayed.rejected.values()),
        "rejected_reasons": replayed.rejected,
        "rejected_acknowledged": rejects.acknowledged,
        "passes": replayed.passes,
        "seconds": round(seconds, 3),
    }
    if as_json:
        click.echo(json.dumps(result))
    else:
        _print_result(result)
    problems = _problems(producer, result, events, interrupted)
    if problems:
        raise click.ClickException("; ".join(problems) + ".")


def _print_result(result: dict[str, Any]) -> None:
    click.echo(
        f"{result['acknowledged']} events acknowledged in {result['topic']}, {result['rejected']} lines rejected, "
        f"{result['seconds']:.1f} s, producer {result['producer']}"
    )
    for reason, count in result["rejected_reasons"].items():
        click.echo(f"  rejected {count}: {reason}")


def _problems(producer: Producer, result: dict[str, Any], events: int, interrupted: bool) -> list[str]:
    reasons = ", ".join(f"{count}: {reason}" for reason, count in result["reasons"].items())
    candidates = [
        (interrupted, f"stopped after {result['published']} of {events} events"),
        (bool(reasons), f"{result['failed'] + result['unknown']} events were not acknowledged ({reasons})"),
        (
            result["rejected_acknowledged"] < result["rejected"],
            "not every rejected line was acknowledged in the dead-letter topic",
        ),
        (
            producer.monitoring_failures > 0,
            f"{producer.monitoring_failures} monitoring events were not delivered",
        ),
    ]
    return [sentence for holds, sentence in candidates if holds]


@contextmanager
def _progress(topic: str, events: int, lines: bool) -> Iterator[Callable[[int], None]]:
    """Give what shows how many events are published: in lines when asked for, else as a bar on a terminal."""
    if lines:
        yield _progress_lines(events)
        return
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"replay to {topic}", total=events)
        yield lambda published: progress.update(task, completed=published)


def _progress_lines(events: int) -> Callable[[int], None]:
    due = 0.0

    def show(published: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            click.echo(f"{published} of {events} events published", err=True)
            due = time.monotonic() + _PROGRESS_LINE_SECONDS

    return show


def _settings(settings: tuple[str, ...]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    for setting, (key, separator, _) in zip(settings, pairs, strict=True):
        if not separator or not key:
            raise click.UsageError(f"--set {setting}: write KEY=VALUE.")
    return {key: value for key, _, value in pairs}
