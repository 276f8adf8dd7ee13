"""`make demo`: roll out, replay a real access log through every datacenter, wait for the audit, print the verdict.

Owns the order of these steps and what is left behind. Invariants: nothing is rolled out for a log without one line that
parses, or while a kept pipeline runs; data is empty at the beginning; exit 0 only when the replays ended well and the audit
says `complete`; whatever happens, the pipeline is taken down, unless DEMO_KEEP=1 and the demo ran to its end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from demo.rollout import CHECKOUT, Datacenter, Rollout, Topology, program
from demo.verdict import TIERS, print_verdict
from headrace.load.options import make_folder
from headrace.producer.replay import NothingToReplayError, require_page_view
from headrace.producer.spool import VARIABLE as SPOOL_VARIABLE

SAMPLE: Final = CHECKOUT / "examples" / "access.log"
EVENTS_DEFAULT: Final = 10_000
# Page views a second in each datacenter: traffic that a person can watch flow, instead of one burst.
RATE_DEFAULT: Final = 2_000
POLL_INTERVAL_S: Final = 2.0
# The audit is given up when none of its numbers has moved for so long; a killed load is back within half of it.
STALL_TIMEOUT_S: Final = 90.0
# After a replay that failed nothing more will come, and the verdict is known: only the tiers behind it have to settle.
STALL_TIMEOUT_AFTER_FAILURE_S: Final = 20.0
SHOW_INTERVAL_S: Final = 0.2
DIGITS_MAX: Final = 9
LOG_TAIL_BYTES: Final = 4096
_PROGRESS: Final = re.compile(rb"^(\d+) of \d+ events published$", re.MULTILINE)

console = Console(highlight=False)


class SettingError(click.ClickException):
    """A variable of the environment that means nothing; the usage of the command would be no help."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says of a demo."""

    access_log: Path
    events: int
    rate: int
    keep: bool


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read ACCESS_LOG, DEMO_EVENTS, DEMO_RATE and DEMO_KEEP.

    Raises:
        SettingError: DEMO_EVENTS or DEMO_RATE is no positive number.
    """
    return Settings(
        access_log=Path(environment.get("ACCESS_LOG") or SAMPLE).absolute(),
        events=positive_number(environment, "DEMO_EVENTS", EVENTS_DEFAULT),
        rate=positive_number(environment, "DEMO_RATE", RATE_DEFAULT),
        keep=environment.get("DEMO_KEEP", "") not in ("", "0"),
    )


def positive_number(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name) or str(default)
    if not (value.isascii() and value.isdigit() and len(value) <= DIGITS_MAX and int(value) > 0):
        raise SettingError(
            f"{name} is {value!r}: it must be a whole number above 0, of at most {DIGITS_MAX} digits."
        )
    return int(value)


def check_log(path: Path) -> None:
    """Accept a log with at least one line that parses; raises click.ClickException for any other."""
    advice = "set ACCESS_LOG to an access log in combined format."
    try:
        require_page_view(path)
    except NothingToReplayError as error:
        raise click.ClickException(f"{str(error).removesuffix('.')}; {advice}") from error
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}; {advice}") from error


def refuse_while_running(rollout: Rollout) -> None:
    if rollout.runs():
        raise click.ClickException(
            f"A pipeline runs already in {rollout.root}: stop it with `.venv/bin/fab down` first."
        )


def say_play(name: str, seconds: float) -> None:
    console.print(f"  [green]done[/]  {name}  [dim]{seconds:.1f} s[/]")


def roll_out(rollout: Rollout) -> None:
    started = time.monotonic()
    if rollout.data_directory.exists():
        console.print("[bold]Removing the data of the last demo[/]")
        rollout.play("down.yml", lambda *_: None, "headrace_remove_data=true", "headrace_remove_logs=true")
    console.print("[bold]Rolling out inventory/local with playbooks/site.yml[/]")
    rollout.play("site.yml", say_play)
    console.print(f"  rolled out in {time.monotonic() - started:.0f} s\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One front end: its datacenter, its process, and the files of its result and of what it complains of."""

    datacenter: Datacenter
    process: subprocess.Popen[bytes]
    result: Path
    log: Path

    def ending(self) -> str:
        """How the process ended, in one line."""
        if self.process.returncode < 0:
            return f"killed by {signal.Signals(-self.process.returncode).name}"
        if self.process.returncode > 0:
            return last_line(self.log)
        result = json.loads(self.result.read_text(encoding="utf-8"))
        return (
            f"events acknowledged: {result['acknowledged']:,}, lines rejected: {result['rejected']:,}, "
            f"{result['seconds']:.1f} s"
        )

    def acknowledged(self) -> int:
        """The events that the brokers acknowledged, as far as the process lived to say so."""
        try:
            return int(json.loads(self.result.read_text(encoding="utf-8"))["acknowledged"])
        except json.JSONDecodeError:
            return 0

    def published(self) -> int:
        """The events handed to the client so far, as the process last said."""
        found = _PROGRESS.findall(self.log.read_bytes()[-LOG_TAIL_BYTES:])
        return int(found[-1]) if found else 0


def start_replay(datacenter: Datacenter, settings: Settings, output: Path) -> Replay:
    result, log = (output / f"replay-{datacenter.name}.{suffix}" for suffix in ("json", "log"))
    command = [program("headrace"), "replay", "--json", "--progress", "--log", str(settings.access_log)]
    command += ["--events", str(settings.events), "--rate", str(settings.rate)]
    command += ["--datacenter", datacenter.name]
    command += ["--bootstrap", datacenter.bootstrap, "--registry", datacenter.registry_url]
    # Nothing comes after a replay that would publish what a killed one has left.
    environment = {**os.environ, SPOOL_VARIABLE: ""}
    with result.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, start_new_session=True, env=environment
        )
    return Replay(datacenter=datacenter, process=process, result=result, log=log)


def last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it wrote nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What all replays did: whether each ended well, and the events acknowledged to them."""

    well: bool
    acknowledged: int


def replay_all(topology: Topology, settings: Settings, output: Path) -> Published:
    """Publish to every live datacenter at once and wait for the end of all."""
    names = " and ".join(datacenter.name for datacenter in topology.live)
    console.print(
        f"[bold]Replaying {escape(settings.access_log.name)}[/]: {settings.events:,} events to each of {names}, "
        f"{settings.rate:,} a second",
        soft_wrap=True,
    )
    replays = [start_replay(datacenter, settings, output) for datacenter in topology.live]
    try:
        with progress_bars() as bars:
            follow(replays, bars, settings.events)
    finally:
        for replay in replays:
            if replay.process.poll() is None:
                replay.process.terminate()
                replay.process.wait()
    console.print()
    return Published(
        well=all(replay.process.returncode == 0 for replay in replays),
        acknowledged=sum(replay.acknowledged() for replay in replays),
    )


def progress_bars() -> Progress:
    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def follow(replays: Sequence[Replay], bars: Progress, events: int) -> None:
    """Show how far each replay is until all have ended, and how each one ended."""
    running: dict[TaskID, Replay] = {
        bars.add_task(replay.datacenter.name, total=events): replay for replay in replays
    }
    while running:
        for task, replay in list(running.items()):
            bars.update(task, completed=replay.published())
            if replay.process.poll() is not None:
                how = "[green]done[/]" if replay.process.returncode == 0 else "[red]failed[/]"
                console.print(f"  {how}  {replay.datacenter.name}  {escape(replay.ending())}", soft_wrap=True)
                bars.remove_task(task)
                del running[task]
        time.sleep(SHOW_INTERVAL_S)


def audit_report(rollout: Rollout, topology: Topology, output: Path) -> dict[str, Any] | None:
    """Have the audit write report.html and report.json and read the latter; None while it has nothing to say."""
    command = [program("headrace"), "audit", "report", "--bootstrap", topology.offline.bootstrap]
    state = rollout.data_directory / f"{topology.offline.name}-auditor"
    command += ["--warehouse", str(rollout.warehouse), "--state", str(state), "--output", str(output)]
    with (output / "audit.log").open("ab") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    try:
        report: dict[str, Any] = json.loads((output / "report.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return report


def is_complete(report: Mapping[str, Any], published: Published) -> bool:
    """Whether all is well; an audit that does not know of every acknowledged event yet has not spoken its last word."""
    known = report["totals"]["produced"] >= published.acknowledged
    return bool(published.well and known and report["verdict"] == "complete")


def wait_for_verdict(
    rollout: Rollout, topology: Topology, published: Published, output: Path
) -> dict[str, Any] | None:
    """Ask the audit until all is complete, or until its numbers have not moved for a while."""
    stall_timeout_s = STALL_TIMEOUT_S if published.well else STALL_TIMEOUT_AFTER_FAILURE_S
    console.print(f"[bold]Waiting for the audit[/], at most {stall_timeout_s:.0f} s without any progress")
    shown: dict[str, int] | None = None
    moved = time.monotonic()
    with console.status("counting"):
        while True:
            report = audit_report(rollout, topology, output)
            totals = report["totals"] if report else None
            if totals != shown:
                shown, moved = totals, time.monotonic()
                if totals:
                    console.print("  " + "  ".join(f"{tier} {totals[tier]:,}" for tier in TIERS))
            if (report and is_complete(report, published)) or time.monotonic() - moved > stall_timeout_s:
                console.print()
                return report
            time.sleep(POLL_INTERVAL_S)


def objections(report: Mapping[str, Any], published: Published) -> list[str]:
    """Why a demo fails whose report is complete: the replays know of more than the audit could see."""
    if report["verdict"] != "complete":
        return []
    known = report["totals"]["produced"]
    sentences = [] if published.well else ["A replay failed: what it did not publish is not in the report."]
    if known < published.acknowledged:
        sentences.append(
            f"The replays had {published.acknowledged:,} events acknowledged, and the audit knows of {known:,}."
        )
    return sentences


def take_down(rollout: Rollout) -> None:
    if rollout.runs():
        console.print("[bold]Taking the pipeline down[/]")
        rollout.play("down.yml", lambda *_: None)


def run(settings: Settings, rollout: Rollout, output: Path) -> bool:
    """The demo from roll-out to verdict; returns whether everything arrived."""
    topology = rollout.topology()
    shutil.rmtree(output, ignore_errors=True)
    make_folder(output, "--output")
    kept = False
    try:
        roll_out(rollout)
        published = replay_all(topology, settings, output)
        report = wait_for_verdict(rollout, topology, published, output)
        if report is None:
            raise click.ClickException(f"The audit wrote no report: {last_line(output / 'audit.log')}")
        print_verdict(console, report)
        for sentence in objections(report, published):
            console.print(f"[bold red]failed[/]: {sentence}", soft_wrap=True)
        folder = output.relative_to(Path.cwd()) if output.is_relative_to(Path.cwd()) else output
        console.print(f"Report: {escape(f'{folder}/report.html, {folder}/report.json')}", soft_wrap=True)
        kept = settings.keep
    finally:
        if not kept:
            take_down(rollout)
    if kept:
        console.print(
            "The pipeline goes on running: `.venv/bin/fab status` shows it, `.venv/bin/fab down` stops it.",
            soft_wrap=True,
        )
    return is_complete(report, published)


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--inventory",
    type=click.Path(exists=True, path_type=Path),
    default=CHECKOUT / "inventory" / "local",
    help="Inventory to roll out on this machine, instead of inventory/local.",
)
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=CHECKOUT / "var" / "local",
    help="Folder of the services, instead of var/local.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=CHECKOUT / "var" / "demo",
    help="Folder of the report, instead of var/demo; emptied first.",
)
def demo(inventory: Path, root: Path, output: Path) -> None:
    """Roll out three datacenters on this machine, replay real traffic through them and print the verdict.

    ACCESS_LOG names a web server's log in combined format, DEMO_EVENTS the events published in each live datacenter
    (10,000), DEMO_RATE how many of them a second (2,000), and DEMO_KEEP=1 leaves the pipeline running.

    Example: DEMO_EVENTS=50000 make demo
    """
    settings = read_settings(os.environ)
    rollout = Rollout(
        inventory=inventory.absolute(), root=root.absolute(), ansible_log=output.absolute() / "ansible.log"
    )
    check_log(settings.access_log)
    refuse_while_running(rollout)
    # A plain kill takes the pipeline down like Ctrl-C does.
    signal.signal(signal.SIGTERM, interrupt)
    sys.exit(0 if run(settings, rollout, output.absolute()) else 1)
