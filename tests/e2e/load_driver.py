"""A load that kills itself where a test says: `python load_driver.py BOOTSTRAP REGISTRY WAREHOUSE TOPIC [WHEN STEP]`.

WHEN is `before` or `after`, STEP a step's name; without them it loads until nothing is left. Tasks run in this process,
so that a run costs no Spark session.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from inspect import getattr_static
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from headrace.broker.client.bootstrap import Bootstrap
from headrace.events.registry_address import RegistryAddress
from headrace.load import commit, leftovers, tables, task
from headrace.load.driver import LoadConfig, Loader
from headrace.load.spark import RunTasks
from headrace.load.task import Assignment, TaskResult

STEPS: dict[str, tuple[Any, str]] = {
    "settle": (commit, "settle"),
    "plan": (Loader, "_plan"),
    "tasks": (task, "run"),
    "commit": (commit, "commit"),
    "append": (commit, "append"),
    "write metadata": (SqlCatalog, "_write_metadata"),
    "swap metadata": (SqlCatalog, "commit_table"),
    "settle dead letters": (Loader, "_settle"),
    "tell the group": (Loader, "_tell_group"),
    "clean": (leftovers, "remove_dead_data"),
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killing(step: Callable[..., Any], when: str) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> Any:
        if when == "before":
            die()
        step(*arguments, **named)
        die()

    return wrapped


def main() -> None:
    bootstrap, registry, warehouse, topic, *kill = sys.argv[1:]
    if kill:
        owner, name = STEPS[kill[1]]
        step = getattr_static(owner, name)
        function = step.__func__ if isinstance(step, staticmethod) else step
        wrapped = killing(function, kill[0])
        setattr(owner, name, staticmethod(wrapped) if isinstance(step, staticmethod) else wrapped)
    load(bootstrap, registry, tables.open_catalog(warehouse), topic)


def run_here(work: Sequence[Assignment]) -> list[TaskResult]:
    """Tasks in this process."""
    return [task.run(item) for item in work]


def load(bootstrap: str, registry: str, catalog: Catalog, topic: str, run_tasks: RunTasks = run_here) -> None:
    """Load a topic until nothing is left; a round that fails fails the test."""
    config = LoadConfig(
        bootstrap=Bootstrap(bootstrap),
        registry=RegistryAddress(registry),
        task_count_max=2,
        wanted=lambda name: name == topic,
    )
    loader = Loader(catalog, config, run_tasks)
    while True:
        report = loader.round()
        assert not report.failures, report.failures
        if not report.moved:
            break
    loader.close()


if __name__ == "__main__":
    main()
