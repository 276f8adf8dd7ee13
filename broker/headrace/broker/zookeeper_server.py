"""A stand-alone Apache ZooKeeper server: find its jars, write its configuration, start it, ask whether it serves.

The server is the one that comes with PySpark, unless a folder of jars is named. Only its own jars go on the class path:
the hundreds of others would slow its start down.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

JAR_PREFIXES = (
    "zookeeper",
    "slf4j-api",
    "metrics-core",
    "snappy-java",
    "netty-",
    "commons-cli",
    "commons-io",
)
JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Xshare:auto")
MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
ASK_TIMEOUT_S = 1.0


class ZooKeeperServerError(Exception):
    """The server cannot be started; the message says what to do."""


def find_jars(directory: Path | None = None) -> list[Path]:
    """ZooKeeper's jars in `directory`, or in PySpark's jars folder. Raises ZooKeeperServerError."""
    if directory is None:
        spec = importlib.util.find_spec("pyspark")
        if spec is None or not spec.submodule_search_locations:
            raise ZooKeeperServerError(
                "ZooKeeper comes with PySpark: install headrace[load] or name a running one."
            )
        directory = Path(next(iter(spec.submodule_search_locations))) / "jars"
    jars = sorted(jar for jar in directory.glob("*.jar") if jar.name.startswith(JAR_PREFIXES))
    if not any(jar.name.startswith("zookeeper-3") for jar in jars):
        raise ZooKeeperServerError(
            f"{directory} has no zookeeper-3*.jar: name a folder with ZooKeeper's jars."
        )
    return jars


def config_text(data_directory: Path, host: str, port: int) -> str:
    """A `zoo.cfg` of one server for one client address."""
    return (
        "tickTime=2000\n"
        f"dataDir={data_directory}\n"
        f"clientPort={port}\n"
        f"clientPortAddress={host}\n"
        "maxClientCnxns=0\n"
        "admin.enableServer=false\n"
        "autopurge.snapRetainCount=3\n"
        "autopurge.purgeInterval=24\n"
        "4lw.commands.whitelist=srvr,ruok\n"
    )


def command(jars: Sequence[Path], config_path: Path, *, sync: bool = True) -> list[str]:
    """The command line. `sync=False` leaves writing to the disk to the system: for data that may be lost.

    SERVER_JVMFLAGS in the environment adds options of the JVM, as it does for ZooKeeper's own script.
    """
    java = shutil.which("java")
    if java is None:
        raise ZooKeeperServerError("ZooKeeper needs Java 11 or newer: install openjdk-17-jre-headless.")
    options = [*JVM_OPTIONS, *shlex.split(os.environ.get("SERVER_JVMFLAGS", ""))]
    if not sync:
        options.append("-Dzookeeper.forceSync=no")
    return [java, *options, "-cp", ":".join(map(str, jars)), MAIN_CLASS, str(config_path)]


def is_serving(host: str, port: int) -> bool:
    """Whether the server at that address answers `srvr`."""
    try:
        with socket.create_connection((host, port), timeout=ASK_TIMEOUT_S) as sock:
            sock.sendall(b"srvr")
            return b"Mode:" in _read_all(sock)
    except OSError:
        return False


def _read_all(sock: socket.socket) -> bytes:
    received = b""
    while piece := sock.recv(4096):
        received += piece
    return received
