"""`make demo`: roll out, replay a real access log through every datacenter, wait for the audit, print the verdict.

Owns the order of these steps and what is left behind. Invariants: nothing is rolled out for a log without one line that
parses, or while a kept pipeline runs; data is empty at the beginning; exit 0 only when the replays ended well and the audit
says `complete`; whatever happens, the pipeline is taken down, unless DEMO_KEEP=1 and the demo ran to its end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from rich import box
from rich.console import Console
from rich.table import Table

from headrace.cli.rollout import CHECKOUT, Datacenter, Rollout, Topology, program
from headrace.producer.replay import NothingToReplayError, require_page_view

OUTPUT: Final = CHECKOUT / "var" / "demo"
SAMPLE: Final = CHECKOUT / "examples" / "access.log"
EVENTS_DEFAULT: Final = 10_000
POLL_INTERVAL_S: Final = 2.0
# The audit is given up when none of its numbers has moved for so long; a killed load is back within half of it.
STALL_TIMEOUT_S: Final = 90.0
# After a replay that failed nothing more will come, and the verdict is known: only the tiers behind it have to settle.
STALL_TIMEOUT_AFTER_FAILURE_S: Final = 20.0
TIERS: Final = ("produced", "live", "offline", "warehouse", "lost", "duplicated")

console = Console(highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says of a demo."""

    access_log: Path
    events: int
    keep: bool


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read ACCESS_LOG, DEMO_EVENTS and DEMO_KEEP.

    Raises:
        click.UsageError: DEMO_EVENTS is no positive number.
    """
    events = environment.get("DEMO_EVENTS") or str(EVENTS_DEFAULT)
    if not (events.isascii() and events.isdigit() and int(events) > 0):
        raise click.UsageError(f"DEMO_EVENTS is {events!r}: it must be a whole number above 0.")
    return Settings(
        access_log=Path(environment.get("ACCESS_LOG") or SAMPLE).absolute(),
        events=int(events),
        keep=environment.get("DEMO_KEEP", "") not in ("", "0"),
    )


def check_log(path: Path) -> None:
    """Accept a log with at least one line that parses; raises click.ClickException for any other."""
    advice = "Set ACCESS_LOG to an access log in combined format."
    try:
        require_page_view(path)
    except NothingToReplayError as error:
        raise click.ClickException(f"{error} {advice}") from error
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}. {advice}") from error


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
    console.print(f"  the pipeline runs after {time.monotonic() - started:.0f} s\n")


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


def start_replay(datacenter: Datacenter, settings: Settings) -> Replay:
    result, log = (OUTPUT / f"replay-{datacenter.name}.{suffix}" for suffix in ("json", "log"))
    command = [program("headrace"), "replay", "--json", "--log", str(settings.access_log)]
    command += ["--events", str(settings.events), "--datacenter", datacenter.name]
    command += ["--bootstrap", datacenter.bootstrap, "--registry", datacenter.registry_url]
    with result.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, start_new_session=True)
    return Replay(datacenter=datacenter, process=process, result=result, log=log)


def last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it wrote nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What all replays did: whether each ended well, and the events acknowledged to them."""

    well: bool
    acknowledged: int


def replay_all(topology: Topology, settings: Settings) -> Published:
    """Publish to every live datacenter at once and wait for the end of all."""
    names = " and ".join(datacenter.name for datacenter in topology.live)
    console.print(
        f"[bold]Replaying {settings.access_log.name}[/]: {settings.events:,} events to each of {names}"
    )
    replays = [start_replay(datacenter, settings) for datacenter in topology.live]
    try:
        for replay in replays:
            how = "[green]done[/]" if replay.process.wait() == 0 else "[red]failed[/]"
            console.print(f"  {how}  {replay.datacenter.name}  {replay.ending()}", soft_wrap=True)
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


def audit_report(rollout: Rollout, topology: Topology) -> dict[str, Any] | None:
    """Have the audit write report.html and report.json and read the latter; None while it has nothing to say."""
    command = [program("headrace"), "audit", "report", "--bootstrap", topology.offline.bootstrap]
    state = rollout.data_directory / f"{topology.offline.name}-auditor"
    command += ["--warehouse", str(rollout.warehouse), "--state", str(state), "--output", str(OUTPUT)]
    with (OUTPUT / "audit.log").open("ab") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    try:
        report: dict[str, Any] = json.loads((OUTPUT / "report.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return report


def is_complete(report: Mapping[str, Any], published: Published) -> bool:
    """Whether all is well; an audit that does not know of every acknowledged event yet has not spoken its last word."""
    known = report["totals"]["produced"] >= published.acknowledged
    return bool(published.well and known and report["verdict"] == "complete")


def wait_for_verdict(rollout: Rollout, topology: Topology, published: Published) -> dict[str, Any] | None:
    """Ask the audit until all is complete, or until its numbers have not moved for a while."""
    stall_timeout_s = STALL_TIMEOUT_S if published.well else STALL_TIMEOUT_AFTER_FAILURE_S
    console.print(f"[bold]Waiting for the audit[/], at most {stall_timeout_s:.0f} s without any progress")
    shown: dict[str, int] | None = None
    moved = time.monotonic()
    while True:
        report = audit_report(rollout, topology)
        totals = report["totals"] if report else None
        if totals != shown:
            shown, moved = totals, time.monotonic()
            console.print(
                "  " + "  ".join(f"{tier} {totals[tier]:,}" for tier in TIERS[:4]) if totals else ""
            )
        if (report and is_complete(report, published)) or time.monotonic() - moved > stall_timeout_s:
            return report
        time.sleep(POLL_INTERVAL_S)


def tier_table(report: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Events by tier", title_justify="left")
    table.add_column("topic", no_wrap=True)
    for tier in TIERS:
        table.add_column(tier, justify="right")
    for row in report["topics"]:
        table.add_row(f"{row['datacenter']}.{row['topic']}", *(f"{row[tier]:,}" for tier in TIERS))
    table.add_section()
    table.add_row("all", *(f"{report['totals'][tier]:,}" for tier in TIERS))
    return table


def latency_table(report: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Latency in seconds", title_justify="left")
    table.add_column("hop")
    figures = ("mean", "p50", "p99", "max")
    for figure in figures:
        table.add_column(figure, justify="right")
    for hop, latency in report["latency_seconds"].items():
        values = (latency[figure] if latency else None for figure in figures)
        table.add_row(hop.replace("_", " "), *("-" if value is None else f"{value:.2f}" for value in values))
    return table


def print_verdict(report: Mapping[str, Any]) -> None:
    verdict = report["verdict"]
    console.print(tier_table(report))
    console.print(latency_table(report))
    for finding in report["findings"][:10]:
        console.print(
            f"  {finding['kind']} at {finding['hop']} in {finding['datacenter']}: {finding['count']:,} of {finding['topic']}, "
            f"producer {finding['producer']}, sequences {finding['first_sequence']} to {finding['last_sequence']}",
            soft_wrap=True,
        )
    for producer in report.get("incomplete", [])[:10]:
        console.print(
            f"  incomplete: producer {producer['producer']} of {producer['topic']} in {producer['datacenter']}: "
            f"{producer['reason']}",
            soft_wrap=True,
        )
    rejected = report["totals"]["rejected"]
    if rejected:
        console.print(f"Lines that do not parse, kept in the dead-letter topics: {rejected:,}")
    colour = "green" if verdict == "complete" else "red"
    console.print(
        f"\nVerdict: [bold {colour}]{verdict}[/]  (complete until {report['complete_until'] or '-'})"
    )
    console.print(
        f"Report: {(OUTPUT / 'report.html').relative_to(CHECKOUT)}, {(OUTPUT / 'report.json').relative_to(CHECKOUT)}"
    )


def take_down(rollout: Rollout) -> None:
    if rollout.runs():
        console.print("[bold]Taking the pipeline down[/]")
        rollout.play("down.yml", lambda *_: None)


def run(settings: Settings, rollout: Rollout) -> bool:
    """The demo from roll-out to verdict; returns whether everything arrived."""
    topology = rollout.topology()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    kept = False
    try:
        roll_out(rollout)
        published = replay_all(topology, settings)
        report = wait_for_verdict(rollout, topology, published)
        if report is None:
            raise click.ClickException(f"The audit wrote no report: {last_line(OUTPUT / 'audit.log')}")
        print_verdict(report)
        kept = settings.keep
    finally:
        if not kept:
            take_down(rollout)
    if kept:
        console.print(
            "The pipeline goes on running: `.venv/bin/fab status` shows it, `.venv/bin/fab down` stops it."
        )
    return is_complete(report, published)


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def demo() -> None:
    """Roll out three datacenters on this machine, replay real traffic through them and print the verdict.

    ACCESS_LOG names a web server's log in combined format, DEMO_EVENTS the events published in each live datacenter
    (10,000), and DEMO_KEEP=1 leaves the pipeline running.

    Example: DEMO_EVENTS=50000 make demo
    """
    settings = read_settings(os.environ)
    rollout = Rollout()
    refuse_while_running(rollout)
    check_log(settings.access_log)
    # A plain kill takes the pipeline down like Ctrl-C does.
    signal.signal(signal.SIGTERM, interrupt)
    sys.exit(0 if run(settings, rollout) else 1)


if __name__ == "__main__":
    demo()
