"""A program of headrace's as a fork of the test process's own fork server, with what tests use of a `subprocess.Popen`."""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import fork_server


@functools.cache
def _control(owner: int) -> socket.socket:
    """Where this process asks its fork server, which is started for the first one; `owner`: its process id."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        subprocess.Popen(
            [sys.executable, fork_server.__file__, str(there.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
        )
    return here


class ForkedProcess:
    """`python -m MODULE ARGUMENT…`, with a pipe as its standard output."""

    def __init__(self, module: str, arguments: Sequence[str], stderr: IO[bytes]) -> None:
        request = {
            "module": module,
            "arguments": list(arguments),
            "folder": str(Path.cwd()),
            "environment": dict(os.environ),
        }
        output, stdout = os.pipe()
        told, teller = os.pipe()
        try:
            message = json.dumps(request).encode()
            socket.send_fds(_control(os.getpid()), [message], [stdout, stderr.fileno(), teller])
        finally:
            os.close(stdout)
            os.close(teller)
        self.stdout = os.fdopen(output, encoding="utf-8")
        self._told = os.fdopen(told, "rb", buffering=0)
        self._poll = select.poll()
        self._poll.register(self._told, select.POLLIN)
        self.returncode: int | None = None
        self.pid = int(self._line())

    def _line(self) -> bytes:
        line = self._told.readline()
        assert line, "the fork server has ended"
        return line

    def poll(self) -> int | None:
        """The exit code, negative for a signal's number, or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once it has ended; raises TimeoutExpired, as a `subprocess.Popen` does."""
        returncode = self._look(None if timeout is None else timeout * 1000)
        if returncode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return returncode

    def _look(self, timeout_ms: float | None) -> int | None:
        if self.returncode is None and self._poll.poll(timeout_ms):
            self.returncode = int(self._line())
            self._told.close()
            self.stdout.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """To a process that has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
