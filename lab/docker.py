"""The docker command, asked of one engine.

Owns how it is called. A command that fails is a LabError with what it said.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Final

from lab.errors import LabError

COMMAND_TIMEOUT_S: Final = 120


@dataclass(frozen=True, slots=True)
class Docker:
    """The engine at `host`, such as unix:///run/docker.sock; the one that the command finds by itself when that is empty."""

    host: str = ""

    def command(self, *arguments: str) -> list[str]:
        return ["docker", *(["--host", self.host] if self.host else []), *arguments]

    def ask(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                self.command(*arguments), capture_output=True, text=True, check=False, timeout=timeout_s
            )
        except FileNotFoundError:
            raise LabError("There is no docker command: install the Debian package docker.io.") from None
        except subprocess.TimeoutExpired:
            raise LabError(
                f"`docker {' '.join(arguments[:2])}` did not end within {timeout_s:.0f} s: ask the engine with `docker info`."
            ) from None

    def run(self, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """What the command printed, without blanks around it."""
        result = self.ask(*arguments, timeout_s=timeout_s)
        if result.returncode != 0:
            raise LabError(f"`docker {' '.join(arguments[:2])}` failed: {result.stderr.strip()}")
        return result.stdout.strip()

    def answers(self) -> bool:
        return self.ask("version", "--format", "{{.Server.Version}}").returncode == 0
