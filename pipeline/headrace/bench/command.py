"""`headrace bench`: run the cells, keep the raw runs, write the page."""

from __future__ import annotations

import datetime
import json
import shutil
import tempfile
from pathlib import Path

import click
from rich.console import Console

from headrace.bench import cells, generator, machine, page, peers

CELLS = {cell.name: cell for cell in cells.BROKER_CELLS}


@click.command(epilog="Example: headrace bench --rounds 3 --cell 'produce, batch of 50'")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 50), help="Runs of each cell.")
@click.option("--cell", "names", multiple=True, type=click.Choice(list(CELLS)), help="Only these cells.")
@click.option(
    "--docs", default="docs", show_default=True, type=click.Path(path_type=Path), help="Where the page goes."
)
@click.option("--json", "as_json", is_flag=True, help="Print the raw runs and write no page.")
def bench(rounds: int, names: tuple[str, ...], docs: Path, as_json: bool) -> None:
    """Measure a broker with the C client as load generator."""
    wanted = [CELLS[name] for name in names] or list(CELLS.values())
    console = Console(stderr=True)
    program = generator.build(Path(tempfile.gettempdir()) / "headrace-bench")
    with machine.congestion_control() as control:
        runs = [run for number in range(rounds) for run in _round(wanted, number, program, console)]
    record = {
        "title": "Broker",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "note": f"congestion control {control}, acks=1, no compression, {rounds} rounds.",
        "machine": machine.describe(),
        "runs": [run.as_json() for run in runs],
    }
    if as_json:
        click.echo(json.dumps(record, indent=1))
        return
    folder = docs / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "broker.json").write_text(json.dumps(record, indent=1) + "\n")
    (docs / "benchmarks.md").write_text(page.render(folder))
    console.print(f"Wrote {docs / 'benchmarks.md'}.")


def _round(
    wanted: list[cells.ProduceCell | cells.FetchCell], number: int, program: Path, console: Console
) -> list[cells.RawRun]:
    """One round: a fresh broker, every wanted cell in turn (a fetch is preceded by what it reads)."""
    data = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    runs = []
    try:
        with peers.headrace(data) as peer:
            for cell in wanted:
                run = cells.measure(cell, peer, number, program)
                runs.append(run)
                rate, cost = run.messages / run.seconds, run.cpu_seconds / run.messages * 1e6
                console.print(
                    f"round {number + 1}  {cell.name}: {rate:,.0f} messages/s, {cost:.2f} µs CPU a message"
                )
    except click.ClickException:
        console.print(f"The broker's files and logs are kept in {data}.")
        raise
    shutil.rmtree(data, ignore_errors=True)
    return runs
