"""Class archives (JEP 350) of what tests start dozens of times, Spark, ZooKeeper and Apache Kafka: a start costs half as much.

`python scripts/class_archives.py` makes those that are missing, which takes up to 15 s of CPU each; `scripts/setup test` runs it.
A JVM for which an archive is not (another Java, other jars) goes on without it. Owns where they lie and how they are made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[1]
KAFKA_JVM: Final = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
START_SECONDS: Final = 90
SPARK_PROGRAM: Final = """
from pyspark import SparkContext
from headrace.load.spark import spark_session
session = spark_session(2)
assert session.sparkContext.parallelize([1, 2], 2).map(str).collect() == ["1", "2"]
session.stop()
jvm = SparkContext._gateway.proc
jvm.stdin.close()
jvm.wait()
"""


def spark_archive() -> Path:
    """Where Spark's archive is, or is to be: with the jars that it is made of, in the virtual environment."""
    return Path(sys.prefix) / f"spark-{_java()}.jsa"


def zookeeper_archive() -> Path:
    """Where that of the ZooKeeper is that comes with Spark."""
    return Path(sys.prefix) / f"zookeeper-{_java()}.jsa"


def kafka_archive(jars: Path) -> Path:
    return jars.with_name(f"{jars.name}-{_java()}.jsa")


def options(archive: Path) -> tuple[str, ...]:
    """A JVM's options that use it; none where it was not made."""
    quiet = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    return (f"-XX:SharedArchiveFile={archive}", *quiet) if archive.is_file() else ()


def _java() -> str:
    """What tells one installed Java from another."""
    program = Path(shutil.which("java") or "java")
    with suppress(FileNotFoundError):
        program = program.resolve()
        return hashlib.sha256(f"{program} {program.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return "none"


@contextmanager
def _made_whole(archive: Path) -> Iterator[str]:
    """The option that makes a JVM write the archive when it ends, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        written = Path(folder) / archive.name
        yield f"-XX:ArchiveClassesAtExit={written}"
        if written.is_file():
            os.replace(written, archive)


def make_spark_archive() -> None:
    with _made_whole(spark_archive()) as option:
        subprocess.run(
            [sys.executable, "-c", SPARK_PROGRAM],
            env=os.environ | {"SPARK_SUBMIT_OPTS": f"{option} -Xlog:disable"},
            stdout=sys.stderr,
            check=True,
        )


def make_zookeeper_archive() -> None:
    """Start ZooKeeper, let a client write, read, watch and delete, and stop it."""
    from kazoo.client import KazooClient

    with tempfile.TemporaryDirectory() as folder, _made_whole(zookeeper_archive()) as option:
        (port,) = _free_ports(1)
        with _zookeeper(Path(folder), port, option, "-Xlog:disable"):
            client = KazooClient(f"127.0.0.1:{port}")
            client.start(START_SECONDS)
            client.create("/a/b", b"1", makepath=True)
            client.create("/a/c", ephemeral=True, sequence=True)
            client.get_children("/a", watch=lambda _: None)
            version = client.get("/a/b", watch=lambda _: None)[1].version
            transaction = client.transaction()
            transaction.check("/a/b", version)
            transaction.set_data("/a/b", b"2")
            transaction.commit()
            client.delete("/a", recursive=True)
            client.stop()
            client.close()


@contextmanager
def _zookeeper(home: Path, port: int, *options: str) -> Iterator[None]:
    """A ZooKeeper that serves there, with these options of the JVM, until the end."""
    from headrace.broker import zookeeper_server

    config = home / "zoo.cfg"
    config.write_text(zookeeper_server.config_text(home / "zookeeper", "127.0.0.1", port))
    java, *rest = zookeeper_server.command(zookeeper_server.find_jars(), config, sync=False)
    with _running([java, *options, *rest]):
        _eventually(lambda: zookeeper_server.is_serving("127.0.0.1", port))
        yield


def make_kafka_archive(jars: Path) -> None:
    """Start Apache Kafka, let a client publish and read its topics, and stop it."""
    from bench import apache_kafka

    with tempfile.TemporaryDirectory() as folder, _made_whole(kafka_archive(jars)) as option:
        home, (zookeeper_port, port) = Path(folder), _free_ports(2)
        config = home / "server.properties"
        config.write_text(
            f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={home}/logs\n"
            f"zookeeper.connect=127.0.0.1:{zookeeper_port}\noffsets.topic.replication.factor=1\n"
        )
        kafka = apache_kafka.command(jars, config, (*KAFKA_JVM, option, "-Xlog:disable"))
        with _zookeeper(home, zookeeper_port), _running(kafka):
            _eventually(lambda: _listens(port))
            _use(f"127.0.0.1:{port}")


def _use(bootstrap: str) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("archived", b"value")
    assert producer.flush(START_SECONDS) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "archived", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["archived"])
    consumer.consume(1, timeout=START_SECONDS)
    consumer.close()


@contextmanager
def _running(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def _eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"did not start in {START_SECONDS} s")
        time.sleep(0.05)


def main() -> None:
    """Make what is missing; tests run without it as well, so that no failure here ends anything."""
    sys.path.insert(0, str(CHECKOUT))
    from bench import apache_kafka

    if not spark_archive().is_file():
        _try("Spark", make_spark_archive)
    if not zookeeper_archive().is_file():
        _try("ZooKeeper", make_zookeeper_archive)
    try:
        jars = apache_kafka.find_jars()
    except apache_kafka.NoKafkaError:
        return  # whose tests say so
    if not kafka_archive(jars).is_file():
        _try("Apache Kafka", lambda: make_kafka_archive(jars))


def _try(name: str, make: Callable[[], None]) -> None:
    print(f"Making a class archive of {name}, with which tests start it in half the time", flush=True)
    try:
        make()
    except (OSError, subprocess.SubprocessError, AssertionError) as error:
        print(f"It could not be made ({error}): tests go on without it, more slowly.", file=sys.stderr)


if __name__ == "__main__":
    main()
