"""`make bench`: run the cells, keep the raw runs, write the page."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench import generator, machine, page
from bench.apache_kafka import NoKafkaError, find_jars
from bench.figures import sentence
from bench.groups import CELLS, GROUPS, KAFKA_CELLS, choose, expected, measure
from bench.progress import TimeLeft
from bench.runs import Effort, RawRun, Workshop

Records = dict[str, dict[str, Any]]
"""What is kept of each cell: where and when it ran, how busy the machine was, and its raw runs."""


@click.command(epilog="Example: python -m bench --cell 'produce, batch of 50' --cell mirror")
@click.option(
    "--cell",
    "names",
    multiple=True,
    metavar="NAME",
    help=f"Only this cell, or the cells of a group: {', '.join(group.name for group in GROUPS)}.",
)
@click.option("--list", "is_list", is_flag=True, help="Print the names of all cells and run none.")
@click.option(
    "--pairs",
    default=7,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Runs of each broker cell, in turns with Apache Kafka.",
)
@click.option(
    "--seconds", default=3.0, show_default=True, type=click.FloatRange(0.2, 60), help="Length of such a run."
)
@click.option(
    "--warm-up",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, 600),
    help="Seconds for Apache Kafka to get warm; a minute and 5 M messages, or as much of both.",
)
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    type=click.IntRange(1, 50),
    help="Runs of each cell of mirror, load, audit and producer.",
)
@click.option(
    "--docs", default="docs", show_default=True, type=click.Path(path_type=Path), help="Where the page goes."
)
@click.option("--json", "as_json", is_flag=True, help="Print the raw runs and write no page.")
def bench(
    names: tuple[str, ...],
    is_list: bool,
    pairs: int,
    seconds: float,
    warm_up: float,
    rounds: int,
    docs: Path,
    as_json: bool,
) -> None:
    """Measure broker, mirror, load, audit and producer with a C client as load generator, the broker beside Apache Kafka.

    The raw runs of a cell that ran replace those beside the page, and the page is made anew. Without --cell all cells run.
    """
    if is_list:
        click.echo("\n".join(CELLS))
        return
    try:
        wanted = choose(names)
    except KeyError as error:
        raise click.BadParameter(
            f"there is no cell {error}; python -m bench --list prints their names.", param_hint="--cell"
        ) from None
    effort = Effort(rounds=rounds, pairs=pairs, seconds=seconds, warm_up_seconds=warm_up)
    records: Records = {}
    # Whoever ends us ends the brokers, too.
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        _measure(wanted, effort, records, Console(stderr=True, soft_wrap=True, highlight=False))
    finally:
        signal.signal(signal.SIGTERM, before)
        # Also what was measured before a failure or Ctrl-C is worth its minutes.
        if as_json:
            click.echo(json.dumps(list(records.values()), indent=1))
        elif records:
            page.keep(docs, records)
            page.write(docs)
            click.echo(f"Wrote {docs / 'benchmarks.md'}.", err=True)


def _measure(wanted: set[str], effort: Effort, records: Records, console: Console) -> None:
    """Run the wanted cells; a cell is added to the records once all its runs are there."""
    program = generator.build(Path(tempfile.gettempdir()) / "headrace-bench")
    jars = _kafka_jars(console) if wanted.intersection(KAFKA_CELLS) else None
    with _scratch(console) as data, machine.congestion_control() as control:
        workshop = Workshop(generator=program, data=data, effort=effort, kafka_jars=jars, say=console.print)
        left = TimeLeft({cell: expected(cell, workshop) for cell in wanted})
        begun: Records = {}
        for run in measure(wanted, workshop):
            left.ran(run.cell)
            console.print(f"{sentence(run.as_json())}   [dim]{left}[/dim]")
            record = begun.setdefault(run.cell, _new_record(run.cell, effort, control))
            _keep(run, record)
            if left.is_complete(run.cell):
                records[run.cell] = record


def _kafka_jars(console: Console) -> Path | None:
    try:
        return find_jars()
    except NoKafkaError as error:
        console.print(f"headrace is measured alone, without Apache Kafka beside it. {error}")
        return None


@contextlib.contextmanager
def _scratch(console: Console) -> Iterator[Path]:
    """A folder for data and logs, which are kept only when something failed."""
    data = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        yield data
    except click.ClickException:
        console.print(f"The files and logs are kept in {data}.")
        raise
    except BaseException:
        shutil.rmtree(data, ignore_errors=True)
        raise
    shutil.rmtree(data, ignore_errors=True)


def _new_record(cell: str, effort: Effort, control: str) -> dict[str, Any]:
    return {
        "cell": cell,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "congestion_control": control,
        "effort": asdict(effort),
        "load_average": [],
        "machine": machine.describe(),
        "runs": [],
    }


def _keep(run: RawRun, record: dict[str, Any]) -> None:
    """Add a run; the load average is kept as of the first and the last."""
    record["runs"].append(run.as_json())
    record["load_average"] = [*record["load_average"][:1], round(os.getloadavg()[0], 2)]
