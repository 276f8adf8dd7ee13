"""The long-lived Spark session of a load, and how its tasks are run there.

Owns which settings a load gives Spark. Invariant: a master, and any setting of the session, that is given from outside
wins (spark-submit's options, PYSPARK_SUBMIT_ARGS, spark-defaults.conf, MASTER); only a master on this machine gets what is
meant for one machine. Must not know what tasks do.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from headrace.load import task
from headrace.load.task import Assignment, TaskResult

RunTasks = Callable[[Sequence[Assignment]], list[TaskResult]]


def spark_session(task_count_max: int) -> Any:
    """Start or join the session: `local[N,4]` where no master is given, since plain `local[N]` never retries a task."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("MASTER", f"local[{task_count_max},4]")  # the last place where Spark looks for one
    os.environ.setdefault("SPARK_DRIVER_MEMORY", "512m")  # likewise
    launched = SparkConf(loadDefaults=False).setAll(list(_for_the_jvm().items()))
    SparkContext._ensure_initialized(conf=launched)
    given = SparkConf()
    builder = SparkSession.builder.appName("headrace-load")
    for key, value in _settings(given.get("spark.master") or "").items():
        if not given.contains(key):
            builder = builder.config(key, value)
    return builder.getOrCreate()


def spark_tasks(session: Any) -> RunTasks:
    """Run each assignment as one task of an RDD job; only `TaskResult`s come back."""

    def run_tasks(assignments: Sequence[Assignment]) -> list[TaskResult]:
        rdd = session.sparkContext.parallelize(assignments, max(1, len(assignments)))
        results: list[TaskResult] = rdd.map(task.run).collect()
        return results

    return run_tasks


def warm_up(session: Any, task_count: int) -> None:
    """Start the Python workers and let them, and the driver, import all they need: the first round is as quick as the next."""
    task.is_imported(0)
    session.sparkContext.parallelize(range(task_count), task_count).map(task.is_imported).collect()


def _for_the_jvm() -> dict[str, str]:
    """Return what counts only when the JVM is launched; spark-submit has launched one already."""
    log4j = files("headrace.load").joinpath("log4j2.properties")
    return {
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={log4j}",
        "spark.ui.showConsoleProgress": "false",
    }


def _settings(master: str) -> dict[str, str]:
    settings = {
        "spark.python.worker.reuse": "true",
        "spark.sql.warehouse.dir": os.path.join(os.environ.get("TMPDIR", "/tmp"), "headrace-spark"),
    }
    if re.fullmatch(r"local(\[.*\])?", master):
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    return settings
