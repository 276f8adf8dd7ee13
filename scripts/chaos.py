"""`make chaos`: one demo in which every supervised process is killed once, at random moments of the replay.

CHAOS_SEED repeats the order and the moments of an earlier run, CHAOS_SERVICES=a,b kills only those, DEMO_EVENTS and
DEMO_RATE are the demo's own. Exit 0 when each service came back as another process and the demo ended complete.
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


def run(seed: int, services: list[str], directory: Path) -> bool:
    chance = random.Random(seed)
    chance.shuffle(services)
    environment = {name: os.environ.get(name) or value for name, value in ENVIRONMENT.items()}
    print(f"CHAOS_SEED={seed}: {environment['DEMO_EVENTS']} events to each live datacenter", flush=True)
    inventory = copy_of_local(directory, network=79)
    with DemoProcess(directory, inventory=inventory, environment=environment) as demo:
        gone = rampage(demo, services, chance)
        code = demo.wait()
    print(demo.text())
    print(f"did not come back: {', '.join(gone) or 'none'}; the demo's exit code: {code}")
    return code == 0 and not gone


def main() -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    named = [name for name in os.environ.get("CHAOS_SERVICES", "").split(",") if name]
    if unknown := set(named) - SERVICES:
        raise SystemExit(
            f"No service is called {', '.join(unknown)}: there are {', '.join(sorted(SERVICES))}."
        )
    directory = Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
    try:
        with alone_on_this_machine():
            well = run(seed, named or sorted(SERVICES), directory)
    except BusyError as error:
        raise SystemExit(str(error)) from error
    print(f"Logs and data are in {directory}.")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
