"""Apache Kafka 3.9 in ZooKeeper mode as a process: where its jars come from, and the command line that starts it.

The jars lie in the folder that HEADRACE_KAFKA_JARS names, or are fetched once with Maven (pom.xml) into the user's cache.
Used by the benchmarks and by the conformance tests; must not know what is asked of the broker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

VERSION = "3.9.2"
MAIN_CLASS = "kafka.Kafka"
POM = Path(__file__).with_name("pom.xml")
MIRROR_MAKER_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
MIRROR_MAKER_POM = Path(__file__).with_name("mirror_maker_pom.xml")
STREAMS_POM = Path(__file__).with_name("streams_pom.xml")
CONNECT_POM = Path(__file__).with_name("connect_pom.xml")
FETCH_TIMEOUT_S = 240


class NoKafkaError(Exception):
    """Why Apache Kafka cannot be had here, and what to do."""


def find_jars() -> Path:
    """The folder with Kafka's jars; fetches them when they are nowhere yet. Raises NoKafkaError."""
    named = os.environ.get("HEADRACE_KAFKA_JARS")
    if named:
        if not list(Path(named).glob("kafka_2.13-*.jar")):
            raise NoKafkaError(f"HEADRACE_KAFKA_JARS={named} is no folder with Apache Kafka's jars.")
        return Path(named)
    return _cached(f"kafka-{VERSION}", POM)


def find_mirror_maker_jars() -> Path:
    """The folder with what MirrorMaker 2 has beyond Kafka's jars; fetched in the same way. Raises NoKafkaError."""
    return _cached(f"mirror-maker-{VERSION}", MIRROR_MAKER_POM, "-DexcludeTransitive=true")


def find_streams_jars() -> Path:
    """The folder with what Kafka Streams has beyond Kafka's jars; fetched in the same way. Raises NoKafkaError."""
    return _cached(f"kafka-streams-{VERSION}", STREAMS_POM, "-DexcludeTransitive=true")


def find_connect_jars() -> Path:
    """The folder with the file connectors, beyond Kafka's jars; fetched in the same way. Raises NoKafkaError."""
    return _cached(f"connect-file-{VERSION}", CONNECT_POM, "-DexcludeTransitive=true")


def _cached(name: str, pom: Path, *options: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
    jars = cache / name
    if not jars.is_dir():
        _fetch(cache, jars, pom, *options)
    return jars


def _fetch(cache: Path, jars: Path, pom: Path, *options: str) -> None:
    if shutil.which("mvn") is None:
        raise NoKafkaError(
            f"Apache Kafka's jars are not in {jars}, and Maven, which fetches them, is not installed: install the package "
            "maven, or name a folder with the jars in HEADRACE_KAFKA_JARS."
        )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
        command = ["mvn", "-q", "-B", "-f", str(pom), *goal, *options]
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise NoKafkaError(
                f"Maven did not fetch Apache Kafka's jars within {FETCH_TIMEOUT_S} s: try again."
            ) from None
        if run.returncode != 0:
            raise NoKafkaError(
                f"Maven could not fetch Apache Kafka's jars: {(run.stdout + run.stderr)[-500:]}"
            )
        # Whole or not at all, also when two processes fetch at once.
        if not jars.is_dir():
            os.rename(f"{folder}/jars", jars)


def command(jars: Path, config: Path, jvm_options: Iterable[str]) -> list[str]:
    """The command line of one broker with that `server.properties`."""
    return ["java", *jvm_options, "-cp", f"{jars}/*", MAIN_CLASS, str(config)]


def mirror_maker_command(jars: Path, own_jars: Path, config: Path, jvm_options: Iterable[str]) -> list[str]:
    """The command line of one MirrorMaker 2 with that `mm2.properties`."""
    return ["java", *jvm_options, "-cp", f"{own_jars}/*:{jars}/*", MIRROR_MAKER_CLASS, str(config)]
