"""Where ZooKeeper's jars are on a machine that rolls out to itself, from its virtual environment: PySpark's folder has them.

Looks at this machine's files, so that only an inventory of this machine may use it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

# What the server needs to run and to log, of the 280 jars beside them.
NEEDED = (
    "zookeeper-[0-9]",
    "zookeeper-jute-",
    "slf4j-api-",
    "log4j-slf4j2-impl-",
    "log4j-api-",
    "log4j-core-",
    "metrics-core-",
    "snappy-java-",
    "netty-common-",
    "netty-handler-[0-9]",
    "netty-transport-[0-9]",
    "netty-buffer-",
    "netty-resolver-[0-9]",
    "netty-codec-base-",
    "netty-transport-classes-epoll-",
    "netty-transport-native-unix-common-",
    "commons-io-",
)


def pyspark_jars(programs: str) -> str:
    """The folder of PySpark's jars in the virtual environment whose programs are in that folder."""
    environment = Path(programs).parent
    found = sorted(environment.glob("lib/python3*/site-packages/pyspark/jars"))
    return str(found[0] if found else environment / "lib" / "pyspark" / "jars")


def zookeeper_classpath(folder: str) -> str:
    """Java's class path of the jars in the folder that ZooKeeper needs."""
    return ":".join(str(jar) for name in NEEDED for jar in sorted(Path(folder).glob(f"{name}*.jar")))


class FilterModule:
    """Makes the functions known to Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "headrace_pyspark_jars": pyspark_jars,
            "headrace_zookeeper_classpath": zookeeper_classpath,
        }
