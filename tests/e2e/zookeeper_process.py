"""A real ZooKeeper server: one that clusters share, each under a chroot, or one to kill and bring back."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from processes import eventually, free_port

from headrace.broker import zookeeper_server


class ZooKeeperProcess:
    """One server on a port of its own, which it keeps over restarts, as it does its data."""

    def __init__(self, home: Path, host: str = "127.0.0.1") -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._host = host
        self.port = free_port(host)
        self._log = home / "zookeeper.log"
        self._config = home / "zoo.cfg"
        text = zookeeper_server.config_text(home / "data", host, self.port)
        self._config.write_text(text.replace("tickTime=2000", "tickTime=500"))
        self.start()

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    def under_chroot(self, home: Path) -> str:
        """HOST:PORT/CHROOT of the cluster with that home, each time the same."""
        return f"{self.address}/{hashlib.sha256(bytes(home)).hexdigest()[:16]}"

    def start(self) -> None:
        command = zookeeper_server.command(zookeeper_server.find_jars(), self._config, sync=False)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(lambda: zookeeper_server.is_serving(self._host, self.port), what="ZooKeeper's answer")

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()
