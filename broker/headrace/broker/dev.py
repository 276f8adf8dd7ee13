"""`headrace dev`: a ZooKeeper and some brokers in the foreground, for development and tests.

Every part is a process of its own, just as in production; they die with this one, however it ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

import click

from headrace.broker import zookeeper_server
from headrace.broker.addresses import split_address
from headrace.broker.client.blocking import BlockingLink
from headrace.broker.config.broker import BrokerConfig, unknown_key_sentence
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.stop_signals import stop_signals
from headrace.broker.wire.api import k03_metadata

START_TIMEOUT_S = 60.0
ZOOKEEPER_TIMEOUT_S = 3.0
STOP_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 5.0
POLL_S = 0.05
FIRST_BROKER_ID = 1
PR_SET_PDEATHSIG = 1
METADATA_VERSION = 12
DEVELOPMENT_DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    # All brokers stop together: there is nobody to lead what one of them led.
    "controlled.shutdown.enable": "false",
    # A broker that was killed may come back soon under the same id.
    "zookeeper.session.timeout.ms": "6000",
    # Buffers that the kernel sizes itself: Kafka's 100 KiB cost twice the CPU per byte in large batches and fetches.
    "socket.send.buffer.bytes": "-1",
    "socket.receive.buffer.bytes": "-1",
}

Child = subprocess.Popen[bytes]


class DevError(click.ClickException):
    """Something did not start or did not stay; the message says what and where its log is."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--brokers", "broker_count", type=click.IntRange(1, 100), default=1, show_default=True)
@click.option(
    "--listen",
    default="127.0.0.1:9092",
    show_default=True,
    help="HOST:PORT of the first broker; 0: any port.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory; a temporary one by default.",
)
@click.option(
    "--zookeeper", help="HOST:PORT,HOST:PORT/CHROOT of a running ZooKeeper; one is started by default."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A server.properties key for all brokers."
)
def dev(
    broker_count: int, listen: str, data: Path | None, zookeeper: str | None, settings: tuple[str, ...]
) -> None:
    """Run a ZooKeeper and some brokers until Ctrl-C.

    Prints one line `ready HOST:PORT,HOST:PORT zookeeper HOST:PORT` once all of them serve.

    Example: headrace dev --brokers 2 --set num.partitions=4
    """
    host, port = _address(listen, "--listen")
    properties = _settings(settings, broker_count)
    for number in stop_signals():
        signal.signal(number, _interrupt)
    try:
        with ExitStack() as stack:
            directory = stack.enter_context(_kept(data) if data else _temporary_directory())
            zookeeper = _answering(zookeeper) if zookeeper else stack.enter_context(_zookeeper(directory))
            addresses = [(host, port + i if port else 0) for i in range(broker_count)]
            brokers = stack.enter_context(_brokers(directory, addresses, zookeeper, properties))
            click.echo(f"ready {','.join(brokers.wait_until_ready())} zookeeper {zookeeper}")
            brokers.wait_for_end()
    except KeyboardInterrupt:
        return


@contextmanager
def _kept(data: Path) -> Iterator[Path]:
    """A directory that stays, and is ours alone meanwhile: two ZooKeepers would write to one log."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = os.open(data, os.O_RDONLY)
    except OSError as error:
        raise click.BadParameter(f"{data} cannot be made: {error.strerror}.", param_hint="--data") from None
    try:
        _lock(lock, data)
        yield data.absolute()
    finally:
        os.close(lock)


def _lock(directory: int, data: Path) -> None:
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DevError(f"another `headrace dev` runs on {data}: end it, or give another --data.") from None


@contextmanager
def _temporary_directory() -> Iterator[Path]:
    """A directory that goes with us, but for one whose logs an error speaks of."""
    directory = Path(tempfile.mkdtemp(prefix="headrace-dev-"))
    is_spoken_of = False
    try:
        yield directory
    except DevError as error:
        is_spoken_of = str(directory) in str(error)
        raise
    finally:
        if not is_spoken_of:
            shutil.rmtree(directory, ignore_errors=True)


def _answering(zookeeper: str) -> str:
    """`zookeeper`, once one of its servers answers."""
    servers = zookeeper.partition("/")[0].split(",")
    addresses = [_address(server, "--zookeeper") for server in servers]
    deadline = time.monotonic() + ZOOKEEPER_TIMEOUT_S
    while not any(zookeeper_server.is_serving(host, port) for host, port in addresses):
        if time.monotonic() > deadline:
            raise DevError(f"no ZooKeeper answers at {zookeeper}: start it, or correct --zookeeper.")
        time.sleep(POLL_S)
    return zookeeper


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _address(text: str, option: str) -> tuple[str, int]:
    address = split_address(text)
    if address is None:
        raise click.BadParameter(f"{text!r} is not HOST:PORT.", param_hint=option)
    return address[0] or "127.0.0.1", address[1]


def development_defaults(broker_count: int) -> dict[str, str]:
    """The properties of so many brokers that nothing else is said of; internal topics get up to three replicas."""
    replicas = str(min(3, broker_count))
    return {
        **DEVELOPMENT_DEFAULTS,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(2, broker_count)),
    }


def _settings(settings: Sequence[str], broker_count: int) -> dict[str, str]:
    """The `--set` options as properties, checked before anything is started."""
    properties = development_defaults(broker_count)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE.", param_hint="--set")
        properties[key.strip()] = value.strip()
    try:
        _, unknown_keys = BrokerConfig.from_properties(properties)
    except ConfigurationError as error:
        raise click.BadParameter(str(error), param_hint="--set") from None
    if unknown_keys:
        raise click.BadParameter(unknown_key_sentence(unknown_keys[0]), param_hint="--set")
    return properties


@contextmanager
def _zookeeper(directory: Path) -> Iterator[str]:
    """A ZooKeeper server on a free port of 127.0.0.1, as HOST:PORT."""
    home = directory / "zookeeper"
    home.mkdir(exist_ok=True)
    host, port = "127.0.0.1", _free_port("127.0.0.1")
    config, log_path = home / "zoo.cfg", home / "zookeeper.log"
    config.write_text(zookeeper_server.config_text(home / "data", host, port))
    try:
        command = zookeeper_server.command(zookeeper_server.find_jars(), config, sync=False)
    except zookeeper_server.ZooKeeperServerError as error:
        raise DevError(str(error)) from None
    with log_path.open("ab") as log:
        child = start_child(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not zookeeper_server.is_serving(host, port):
            if child.poll() is not None or time.monotonic() > deadline:
                raise DevError(f"ZooKeeper did not start, see {log_path}.")
            time.sleep(POLL_S)
        yield f"{host}:{port}"
    finally:
        _stop([child])


def _free_port(host: str) -> int:
    with socket.socket() as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port


class _Brokers:
    """The broker processes, in the order of their addresses."""

    def __init__(self, children: list[Child], logs: list[Path]) -> None:
        self.children = children
        self._logs = logs

    def wait_until_ready(self) -> list[str]:
        """The addresses of the brokers once each of them serves and knows all others."""
        addresses = [
            self._address_of(child, log) for child, log in zip(self.children, self._logs, strict=True)
        ]
        deadline = time.monotonic() + START_TIMEOUT_S
        for address, log in zip(addresses, self._logs, strict=True):
            while brokers_known_to(address) < len(addresses):
                self._check_alive()
                if time.monotonic() > deadline:
                    raise DevError(f"the broker at {address} did not learn of all others in time, see {log}.")
                time.sleep(POLL_S)
        return addresses

    def wait_for_end(self) -> None:
        """Returns never but by an interrupt; raises DevError when a broker ends by itself."""
        while True:
            self._check_alive()
            time.sleep(1)

    def _address_of(self, child: Child, log: Path) -> str:
        assert child.stdout is not None
        word, _, address = child.stdout.readline().decode().strip().partition(" ")
        if word != "ready":
            raise DevError(f"a broker did not start: {_last_line(log)}")
        return address

    def _check_alive(self) -> None:
        for child, log in zip(self.children, self._logs, strict=True):
            if child.poll() is not None:
                raise DevError(f"a broker ended with exit code {child.returncode}: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return f"{lines[-1].removeprefix('Error: ')} ({log})" if lines else f"see {log}"


@contextmanager
def _brokers(
    directory: Path, addresses: Sequence[tuple[str, int]], zookeeper: str, properties: dict[str, str]
) -> Iterator[_Brokers]:
    children: list[Child] = []
    logs: list[Path] = []
    try:
        for number, (host, port) in enumerate(addresses, start=FIRST_BROKER_ID):
            home = directory / f"broker-{number}"
            home.mkdir(exist_ok=True)
            config = home / "server.properties"
            config.write_text(_server_properties(number, host, port, home, zookeeper, properties))
            logs.append(home / "broker.log")
            command = [sys.executable, "-m", "headrace.broker.command", "--config", str(config)]
            with logs[-1].open("ab") as log:
                children.append(start_child(command, stdout=subprocess.PIPE, stderr=log))
        yield _Brokers(children, logs)
    finally:
        _stop(children)


def _server_properties(
    number: int, host: str, port: int, home: Path, zookeeper: str, properties: dict[str, str]
) -> str:
    values = {
        "broker.id": str(number),
        "listeners": f"PLAINTEXT://{host}:{port}",
        "log.dirs": str(home / "logs"),
        "zookeeper.connect": zookeeper,
        **properties,
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def brokers_known_to(address: str) -> int:
    """How many brokers the one at that address names in its metadata; 0 without a controller or an answer."""
    host, port = _address(address, "address")
    host = host.removeprefix("[").removesuffix("]")
    try:
        with BlockingLink((host, port), "headrace-dev", ANSWER_TIMEOUT_S, negotiates=False) as link:
            metadata = link.ask(k03_metadata.API, METADATA_VERSION, {"topics": []})
    except OSError:
        return 0
    return len(metadata["brokers"]) if metadata["controller_id"] >= 0 else 0


def start_child(command: Sequence[str], *, stdout: int | IO[bytes], stderr: IO[bytes]) -> Child:
    """A child in a session of its own, so that Ctrl-C reaches only us, that ends when we do."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
    )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(children: Sequence[Child]) -> None:
    """Ask all to stop, wait, and end by force who does not."""
    for child in children:
        child.terminate()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


if __name__ == "__main__":
    dev()
