"""Spark SQL with Iceberg's own runtime on a warehouse, as an analyst would have it: `python iceberg_spark.py WAREHOUSE`.

Reads from each line of standard input a JSON list of statements and prints a line with the JSON list of their rows, each a list
of texts. The jars lie in the folder that HEADRACE_ICEBERG_JARS names, or are fetched once with Maven into the user's cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

POM = Path(__file__).with_name("iceberg-pom.xml")
VERSION = "1.11.0"
FETCH_TIMEOUT_S = 240
END_TIMEOUT_S = 60
Rows = list[list[str]]


def find_jars() -> Path:
    """The folder with the jars; fetches them when they are nowhere yet."""
    named = os.environ.get("HEADRACE_ICEBERG_JARS")
    if named:
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
    jars = cache / f"iceberg-spark-{VERSION}"
    if not jars.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
            command = ["mvn", "-q", "-B", "-f", str(POM), *goal]
            subprocess.run(command, stdout=sys.stderr, timeout=FETCH_TIMEOUT_S, check=True)
            # Whole or not at all, also when two processes fetch at once.
            if not jars.is_dir():
                os.rename(f"{folder}/jars", jars)
    return jars


@contextmanager
def spark_session(warehouse: Path) -> Iterator[Callable[[list[str]], list[Rows]]]:
    """Give a function that runs statements in one Spark session and returns the rows of each."""
    command = [sys.executable, __file__, str(warehouse)]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True) as spark,
    ):
        assert spark.stdin is not None
        assert spark.stdout is not None
        requests, replies = spark.stdin, spark.stdout

        def run(statements: list[str]) -> list[Rows]:
            print(json.dumps(statements), file=requests, flush=True)
            answers: list[Rows] = json.loads(_reply(replies, log))
            return answers

        try:
            yield run
            requests.close()
            assert spark.wait(END_TIMEOUT_S) == 0
        finally:
            spark.kill()


def _reply(replies: IO[str], log: IO[str]) -> str:
    """The next line that is an answer; Spark prints others."""
    for line in replies:
        if line.startswith("["):
            return line
    log.seek(0)
    raise AssertionError(log.read()[-3000:])


def spark_sql(warehouse: Path, statements: list[str]) -> list[Rows]:
    """Run statements in a Spark of their own; the rows of each."""
    with spark_session(warehouse) as run:
        return run(statements)


def main() -> None:
    from pyspark.sql import SparkSession

    warehouse, jars = Path(sys.argv[1]), find_jars()
    catalog = "spark.sql.catalog.headrace"
    settings = {
        "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.memory": "768m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{warehouse}/catalog.db",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{warehouse}",
        f"{catalog}.cache-enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    for line in sys.stdin:
        answers = [
            [[str(value) for value in row] for row in session.sql(statement).collect()]
            for statement in json.loads(line)
        ]
        print(json.dumps(answers), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
