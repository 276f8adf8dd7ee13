"""`make lab` and `make lab-down`, and the drills of the roads between datacenters.

Owns the order of the steps and what is said meanwhile. Invariants: `up` makes only what is missing, so a second one changes
nothing; `down` removes only what carries the lab's label, and ends an engine only when `up` started it; of two at a time the
second waits.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from lab import containers, engine, image, roads
from lab.docker import Docker
from lab.errors import LabError
from lab.topology import Topology, topology_of

CHECKOUT: Final = Path(__file__).resolve().parents[1]
INVENTORY_DEFAULT: Final = "inventory/docker-small"


def say(sentence: str) -> None:
    click.echo(sentence)


def listing(inventory: str) -> dict[str, Any]:
    """What `ansible-inventory --list` says of an inventory."""
    program = Path(sys.executable).parent / "ansible-inventory"
    result = subprocess.run(
        [program, "-i", inventory, "--list"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise LabError(f"{inventory} cannot be read: {result.stderr.strip()}")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def inventory_name(path: str) -> str:
    """The inventory as labels name it: relative to the checkout where it is in it."""
    absolute = Path(path).absolute()
    return str(absolute.relative_to(CHECKOUT)) if absolute.is_relative_to(CHECKOUT) else str(absolute)


@contextmanager
def alone() -> Iterator[None]:
    """Only one command at a time makes or removes something."""
    engine.cache_folder().mkdir(parents=True, exist_ok=True)
    with (engine.cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def running_lab() -> tuple[Docker, Topology]:
    """The engine and the topology of the lab that is there."""
    docker = engine.running()
    inventories = containers.inventories(docker) if docker else {}
    if docker is None or not inventories:
        raise LabError("There is no lab: start one with `make lab`.")
    return docker, topology_of(listing(next(iter(inventories.values()))))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def lab() -> None:
    """A container with systemd for each host of an inventory, and a network for each of its datacenters."""


@lab.command()
@click.option(
    "--inventory", default=INVENTORY_DEFAULT, show_default=True, help="The inventory whose hosts to start."
)
def up(inventory: str) -> None:
    """Start the hosts of an inventory, and an engine and an image where these are missing.

    Example: python -m lab up --inventory inventory/docker
    """
    topology = topology_of(listing(inventory))
    with alone():
        docker = engine.ensure(say)
        name = image.ensure(docker, say)
        since = time.monotonic()
        started = containers.start(docker, topology, inventory_name(inventory), name)
        if docker == engine.own():
            engine.weigh(len(topology.hosts))
        containers.wait_until_up(docker, (host.name for host in topology.hosts))
    count = len(topology.hosts)
    if started:
        say(f"{len(started)} of {count} hosts started and are up after {time.monotonic() - since:.0f} s")
    else:
        say(f"All {count} hosts were up already")
    say(f"Roll out with: ansible-playbook -i {inventory} playbooks/site.yml")


@lab.command()
@click.option(
    "--image", "with_image", is_flag=True, help="Remove the cached image and the engine's folder, too."
)
def down(with_image: bool) -> None:
    """Remove the lab's containers and networks, and end the engine that `up` started."""
    with alone():
        docker = engine.running()
        count = containers.remove_all(docker) if docker else 0
        if docker and with_image:
            for name in image.images(docker):
                docker.run("image", "rm", name)
        others = docker.run("ps", "--format", "{{.Names}}").split() if docker == engine.own() else []
        if others:
            say(f"The engine goes on, since it has other containers: {', '.join(others)}")
        else:
            engine.stop()
        if with_image and not others and engine.data_folder().exists():
            shutil.rmtree(engine.data_folder())
    say(f"{count} hosts removed" if count else "There was no lab")


@lab.command()
@click.argument("datacenter")
def cut(datacenter: str) -> None:
    """Let nothing more pass between DATACENTER and the others.

    Example: python -m lab cut dc-east
    """
    docker, topology = running_lab()
    roads.cut(docker, topology.network(datacenter))


@lab.command()
@click.argument("datacenter")
@click.option(
    "--kilobits",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Bits a second, in thousands.",
)
def slow(datacenter: str, kilobits: int) -> None:
    """Let only so much a second pass from the other datacenters to DATACENTER.

    Example: python -m lab slow offline --kilobits 500
    """
    docker, topology = running_lab()
    roads.slow(docker, topology.network(datacenter), kilobits)


@lab.command()
def mend() -> None:
    """Make all roads between datacenters whole again."""
    docker, topology = running_lab()
    roads.mend(docker, topology.networks)
