"""What a service has loaded that reads a file anew without ending, so that no connection is cut.

The file names its own digest (`@digest@` in it), and the process that serves tells that digest at its socket (HAProxy's
`show env`). The environment of its first process would not do: it is that of the last start, and a reload that fails leaves
the former configuration serving. Only the standard library, in Python 3.9.
"""

from __future__ import annotations

import os
import re
import socket
from typing import NamedTuple

VARIABLE = "HEADRACE_CONFIGURATION"
ANSWER_S_MAX = 5.0
ANSWER_SIZE_MAX = 1 << 20


class Loaded(NamedTuple):
    """The digest of the file that is served from, and the process that does; empty and 0 when nobody tells."""

    digest: str = ""
    pid: int = 0


def told(path: str) -> Loaded:
    """What the process at that socket serves from."""
    try:
        return parse(ask(path, f"show env {VARIABLE};show info\n"))
    except OSError:
        return Loaded()


def parse(answer: str) -> Loaded:
    digest = re.search(rf"(?m)^{VARIABLE}=(\w+)$", answer)
    pid = re.search(r"(?m)^Pid: (\d+)$", answer)
    return Loaded(digest[1] if digest else "", int(pid[1]) if pid else 0)


def ask(path: str, question: str) -> str:
    """Reaches the socket by its folder's descriptor: the path of a socket has 107 bytes at most, and a folder's may be longer."""
    folder = os.open(os.path.dirname(path), os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S_MAX)
            connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
            connection.sendall(question.encode())
            answer = b""
            while len(answer) < ANSWER_SIZE_MAX and (part := connection.recv(65536)):
                answer += part
    finally:
        os.close(folder)
    return answer.decode(errors="replace")
