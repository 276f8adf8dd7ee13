"""`headrace bench`: run the cells, keep the raw runs, write the page."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from headrace.bench import broker_cells, generator, load_cells, machine, mirror_cells, page
from headrace.bench.runs import Group, RawRun, Workshop

GROUPS: tuple[Group, ...] = (broker_cells, mirror_cells, load_cells)
CELLS = tuple(cell for group in GROUPS for cell in group.cells)


@click.command(epilog="Example: headrace bench --rounds 3 --cell 'produce, batch of 50' --cell broker")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 50), help="Runs of each cell.")
@click.option(
    "--cell",
    "names",
    multiple=True,
    metavar="NAME",
    help=f"Only these: {', '.join(group.name for group in GROUPS)} (all cells of a table) or cells by name: "
    f"{'; '.join(CELLS)}.",
)
@click.option(
    "--docs", default="docs", show_default=True, type=click.Path(path_type=Path), help="Where the page goes."
)
@click.option("--json", "as_json", is_flag=True, help="Print the raw runs and write no page.")
def bench(rounds: int, names: tuple[str, ...], docs: Path, as_json: bool) -> None:
    """Measure broker, mirror and load with a C client as load generator.

    The raw runs of a table whose cells all ran replace those beside the page, and the page is made anew.
    """
    wanted = _wanted(names)
    console = Console(stderr=True, soft_wrap=True)
    program = generator.build(Path(tempfile.gettempdir()) / "headrace-bench")
    records = {}
    with machine.congestion_control() as control:
        for group in GROUPS:
            chosen = tuple(cell for cell in group.cells if cell in wanted)
            if chosen:
                records[group.name] = _record(group, chosen, rounds, control, program, console)
    if as_json:
        click.echo(json.dumps(records, indent=1))
        return
    _write(records, docs, console)


def _wanted(names: tuple[str, ...]) -> set[str]:
    """The cells that names of cells or tables stand for; all of them without names."""
    by_name = {cell: {cell} for cell in CELLS} | {group.name: set(group.cells) for group in GROUPS}
    for name in names:
        if name not in by_name:
            raise click.BadParameter(
                f"{name!r} is no cell; choose from {', '.join(by_name)}.", param_hint="--cell"
            )
    return set().union(*(by_name[name] for name in names)) if names else set(CELLS)


def _record(
    group: Group, chosen: tuple[str, ...], rounds: int, control: str, program: Path, console: Console
) -> dict[str, Any]:
    """Run the chosen cells of a table; the record says where and when, and how busy the machine was."""
    load_before = os.getloadavg()[0]
    runs = [run for number in range(rounds) for run in _round(group, chosen, number, program, console)]
    return {
        "title": group.title,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "note": f"{group.note}; congestion control {control}",
        "load_average": [round(load_before, 2), round(os.getloadavg()[0], 2)],
        "machine": machine.describe(),
        "runs": [run.as_json() for run in runs],
    }


def _round(
    group: Group, chosen: tuple[str, ...], number: int, program: Path, console: Console
) -> list[RawRun]:
    data = Path(tempfile.mkdtemp(prefix=f"headrace-bench-{group.name}-"))
    workshop = Workshop(generator=program, data=data, round=number)
    runs: list[RawRun] = []
    try:
        with console.status(f"{group.title}, round {number + 1}: {chosen[0]}") as status:
            for run in group.measure(chosen, workshop):
                runs.append(run)
                console.print(f"round {number + 1}  {page.sentence(run)}", highlight=False)
                if len(runs) < len(chosen):
                    status.update(f"{group.title}, round {number + 1}: {chosen[len(runs)]}")
    except click.ClickException:
        console.print(f"The files and logs of this round are kept in {data}.")
        raise
    shutil.rmtree(data, ignore_errors=True)
    return runs


def _write(records: dict[str, dict[str, Any]], docs: Path, console: Console) -> None:
    """Keep the raw runs of whole tables and make the page of all that is kept."""
    folder = docs / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    for group in GROUPS:
        record = records.get(group.name)
        if record is None:
            continue
        if {run["cell"] for run in record["runs"]} != set(group.cells):
            console.print(f"{folder / group.name}.json stays as it is: not all cells of the table ran.")
            continue
        (folder / f"{group.name}.json").write_text(json.dumps(record, indent=1) + "\n")
    page.write(docs)
    console.print(f"Wrote {docs / 'benchmarks.md'}.")
