"""A real registry process for tests, and a free port for those that must know it beforehand."""

from __future__ import annotations

import socket
from pathlib import Path

from processes import ForegroundProcess


class RegistryProcess(ForegroundProcess):
    """`headrace registry` on a free port, ready when it is constructed."""

    def __init__(self, log: Path, bootstrap: str, *arguments: str) -> None:
        options = ["--bootstrap", bootstrap, "--listen", "127.0.0.1:0", *arguments]
        super().__init__(["headrace.registry.command", *options], log)
        self.url = f"http://{self.ready[1]}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
