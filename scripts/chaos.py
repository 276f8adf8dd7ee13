"""`make chaos`: one demo in which every supervised process is killed once, at random moments of the replay.

CHAOS_SEED repeats the order and the moments of an earlier run, CHAOS_SERVICES=a,b kills only those, DEMO_EVENTS and
DEMO_RATE are the demo's own. Exit 0 when each service came back as another process and the demo ended complete.

CHAOS_LOSE=offline-broker-2 kills that broker alone, deletes its data and never starts it again: of each datacenter's brokers
any one may go so, and the demo ends complete.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

from demo_process import SERVICES, BusyError, DemoProcess, alone_on_this_machine, copy_of_local

FIRST, LAST = 0.2, 0.8
ENVIRONMENT = {"DEMO_EVENTS": "120000", "DEMO_RATE": "1000"}


def rampage(demo: DemoProcess, services: list[str], chance: random.Random) -> list[str]:
    """Kill the services one after the other; returns those that did not come back."""
    moments = sorted(chance.uniform(FIRST, LAST) for _ in services)
    killed = {}
    for moment, service in zip(moments, services, strict=True):
        demo.wait_until_published(moment)
        killed[service] = demo.kill(service)
        print(f"  killed {service} at {moment:.0%} of the replay", flush=True)
    return [service for service, pid in killed.items() if not demo.is_back(service, pid)]


def lose(demo: DemoProcess, broker: str, chance: random.Random) -> list[str]:
    """Lose a broker for good; nobody has to come back."""
    moment = chance.uniform(FIRST, LAST)
    demo.wait_until_published(moment)
    demo.lose(broker)
    print(f"  lost {broker} and its data at {moment:.0%} of the replay", flush=True)
    return []


def run(seed: int, services: list[str], lost: str | None, directory: Path) -> bool:
    chance = random.Random(seed)
    chance.shuffle(services)
    environment = {name: os.environ.get(name) or value for name, value in ENVIRONMENT.items()}
    print(f"CHAOS_SEED={seed}: {environment['DEMO_EVENTS']} events to each live datacenter", flush=True)
    inventory = copy_of_local(directory, network=79)
    with DemoProcess(directory, inventory=inventory, environment=environment) as demo:
        gone = lose(demo, lost, chance) if lost else rampage(demo, services, chance)
        code = demo.wait()
    print(demo.text())
    print(f"did not come back: {', '.join(gone) or 'none'}; the demo's exit code: {code}")
    return code == 0 and not gone


def main() -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    named = [name for name in os.environ.get("CHAOS_SERVICES", "").split(",") if name]
    lost = os.environ.get("CHAOS_LOSE") or None
    if lost and "-broker-" not in lost:
        raise SystemExit(f"{lost} is no broker: only brokers have replicas elsewhere.")
    if unknown := {*named, *([lost] if lost else [])} - SERVICES:
        raise SystemExit(
            f"No service is called {', '.join(unknown)}: there are {', '.join(sorted(SERVICES))}."
        )
    directory = Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
    try:
        with alone_on_this_machine():
            well = run(seed, named or sorted(SERVICES), lost, directory)
    except BusyError as error:
        raise SystemExit(str(error)) from error
    print(f"Logs and data are in {directory}.")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
