"""A real registry process for tests."""

from __future__ import annotations

from pathlib import Path

from processes import ForegroundProcess


class RegistryProcess(ForegroundProcess):
    """`headrace registry` on a free port, ready when it is constructed."""

    def __init__(self, log: Path, bootstrap: str, *arguments: str) -> None:
        options = ["--bootstrap", bootstrap, "--listen", "127.0.0.1:0", *arguments]
        super().__init__(["headrace.registry.command", *options], log)
        self.url = f"http://{self.ready[1]}"
