"""headrace and Apache Kafka side by side: one ZooKeeper, one `server.properties`, one disk, one client.

Both brokers run all the time; the one that is not measured idles. The data of a run is deleted before the next one
begins, so that neither the disk nor the page cache drifts. Must not know what is measured.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import click
import psutil
from confluent_kafka import KafkaException
from kazoo.client import KazooClient

from bench import apache_kafka
from bench.peers import STOP_SECONDS_MAX, TOPIC_SECONDS_MAX, Peer
from bench.runs import HEADRACE
from headrace.broker import zookeeper_server
from headrace.broker.dev import brokers_known_to, start_child

KAFKA = f"Apache Kafka {apache_kafka.VERSION}"
LOGGING = Path(__file__).with_name("log4j.properties")
START_SECONDS_MAX = 90
POLL_SECONDS = 0.02
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # What a run has written is gone before the next one begins.
    "log.segment.delete.delay.ms": "500",
    # Buffers that the kernel sizes itself: the default of 100 KiB costs both brokers a good deal in large batches.
    "socket.send.buffer.bytes": "-1",
    "socket.receive.buffer.bytes": "-1",
}
"""The same for both; everything else is Kafka's default, which is headrace's."""
JVM_OPTIONS = (
    *("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
    "-Djava.awt.headless=true",
)
"""As kafka-server-start.sh sets them."""


@contextlib.contextmanager
def zookeeper(data: Path) -> Iterator[str]:
    """A ZooKeeper on a free port; gives its HOST:PORT."""
    port = _free_port()
    data.mkdir(parents=True, exist_ok=True)
    config = data / "zoo.cfg"
    config.write_text(zookeeper_server.config_text(data / "data", "127.0.0.1", port))
    try:
        command = zookeeper_server.command(zookeeper_server.find_jars(), config, sync=False)
    except zookeeper_server.ZooKeeperServerError as error:
        raise click.ClickException(str(error)) from None
    with running(command, data / "zookeeper.log") as process:
        _until(lambda: zookeeper_server.is_serving("127.0.0.1", port), process, data / "zookeeper.log")
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def broker(kind: str, jars: Path | None, data: Path, ensemble: str) -> Iterator[Peer]:
    """A broker of that kind (HEADRACE or KAFKA, which needs the jars) with empty data and a chroot of its own."""
    with cluster(kind, jars, data, ensemble, 1) as peer:
        yield peer


@contextlib.contextmanager
def cluster(
    kind: str,
    jars: Path | None,
    data: Path,
    ensemble: str,
    broker_count: int,
    settings: Mapping[str, str] = MappingProxyType({}),
    second_listener: str = "",
    authority: Path | None = None,
) -> Iterator[Peer]:
    """So many brokers of that kind; with more than one every partition is on all, and `acks=all` waits for two.

    `settings` are added to their server.properties. They have a `second_listener` of that name, too, about which the settings
    say more; an `authority` is the file of what its clients trust.
    """
    ports = [_free_port() for _ in range(broker_count)]
    second_ports = [_free_port() for _ in range(broker_count if second_listener else 0)]
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    chroot = f"{ensemble}/{data.name}-{ports[0]}"
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        processes, logs = [], []
        for number, port in enumerate(ports, start=1):
            home = data if broker_count == 1 else data / f"broker-{number}"
            home.mkdir(parents=True, exist_ok=True)
            config = home / "server.properties"
            properties = {
                **SETTINGS,
                "broker.id": str(number),
                "min.insync.replicas": str(min(2, broker_count)),
                "listeners": ",".join(
                    [
                        f"PLAINTEXT://127.0.0.1:{port}",
                        *(
                            f"{second_listener}://127.0.0.1:{each}"
                            for each in second_ports[number - 1 : number]
                        ),
                    ]
                ),
                "log.dirs": str(home / "logs"),
                "zookeeper.connect": chroot,
                **settings,
            }
            config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            logs.append(home / "broker.log")
            command = stack.enter_context(_command(kind, jars, config, home))
            processes.append(stack.enter_context(running(command, logs[-1])))
        for port, process, log in zip(ports, processes, logs, strict=True):
            address = f"127.0.0.1:{port}"
            _until(lambda address=address: brokers_known_to(address) == broker_count, process, log)  # type: ignore[misc]
        first, *others = (psutil.Process(process.pid) for process in processes)
        yield Peer(
            name=kind,
            bootstrap=bootstrap,
            process=first,
            start_seconds=round(time.monotonic() - began, 3),
            others=tuple(others),
            log_directories=tuple(log.parent / "logs" for log in logs),
            zookeeper=chroot,
            second_bootstrap=",".join(f"127.0.0.1:{port}" for port in second_ports),
            authority=str(authority or ""),
        )


@contextlib.contextmanager
def both(
    jars: Path | None,
    data: Path,
    ensemble: str,
    broker_count: int = 1,
    settings: Mapping[str, str] = MappingProxyType({}),
    second_listener: str = "",
    authority: Path | None = None,
) -> Iterator[Sequence[Peer]]:
    """headrace, and Apache Kafka beside it if there are jars; of each so many brokers, as `cluster` has them."""
    kinds = [(HEADRACE, "headrace")] if jars is None else [(HEADRACE, "headrace"), (KAFKA, "kafka")]
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                cluster(
                    kind, jars, data / folder, ensemble, broker_count, settings, second_listener, authority
                )
            )
            for kind, folder in kinds
        ]


@contextlib.contextmanager
def zookeeper_session(peer: Peer) -> Iterator[KazooClient]:
    """A session with a cluster's ZooKeeper."""
    zookeeper = KazooClient(hosts=peer.zookeeper, timeout=60)
    zookeeper.start()
    try:
        yield zookeeper
    finally:
        zookeeper.stop()
        zookeeper.close()


@contextlib.contextmanager
def topic(peer: Peer, name: str, partitions: int) -> Iterator[str]:
    """A topic of the broker for as long as it is needed; its files are gone afterwards."""
    peer.create_topic(name, partitions)
    yield name
    _delete_topic(peer, name)


def in_turns(peers: Sequence[Peer], pairs: int) -> Iterator[tuple[int, Peer]]:
    """Who runs next in which pair: A B, B A, A B, ..."""
    for number in range(pairs):
        for peer in peers if number % 2 == 0 else reversed(peers):
            yield number, peer


def _delete_topic(peer: Peer, name: str) -> None:
    admin = peer.admin()
    try:
        for deleted in admin.delete_topics([name], request_timeout=TOPIC_SECONDS_MAX).values():
            deleted.result(TOPIC_SECONDS_MAX)
    except (KafkaException, TimeoutError) as error:
        raise click.ClickException(f"topic {name} cannot be deleted: {error!r}") from error
    deadline = time.monotonic() + TOPIC_SECONDS_MAX
    while any(next(directory.glob(f"{name}-*"), None) for directory in peer.log_directories):
        if time.monotonic() > deadline:
            raise click.ClickException(f"{peer.name} keeps files of the deleted topic {name}.")
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def _command(kind: str, jars: Path | None, config: Path, data: Path) -> Iterator[list[str]]:
    if kind == HEADRACE:
        yield [sys.executable, "-m", "headrace.broker.command", "--config", str(config)]
        return
    assert jars is not None
    yield apache_kafka.command(jars, config, jvm_options(data / "kafka.log"))


def jvm_options(log: Path) -> tuple[str, ...]:
    """Those of Kafka's start scripts, and what it logs into that file."""
    return (*JVM_OPTIONS, f"-Dlog4j.configuration=file:{LOGGING}", f"-Dheadrace.log={log}")


@contextlib.contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child, which is ended with the block."""
    with log.open("wb") as output:
        process = start_child(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(is_ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise click.ClickException(f"A process did not start; see {log}.")
        time.sleep(POLL_SECONDS)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
