"""A copy without any work of ours: what this machine takes to bring bytes from a socket into a new file.

    python bench/raw_copy.py FILE BYTES

listens on a free port of 127.0.0.1, prints it, receives BYTES from the first client, and prints its own seconds of CPU
and wall time and its memory as JSON. New file pages cost a virtual machine several times more at some hours than at
others; beside this yardstick a reader sees which it was.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import time
from pathlib import Path

BLOCK_SIZE = 1 << 20


def receive(connection: socket.socket, file: Path, size: int) -> None:
    """Write `size` bytes from the connection to a new file, a block at a time."""
    block = memoryview(bytearray(BLOCK_SIZE))
    with file.open("wb", buffering=0) as out:
        while size > 0:
            count = connection.recv_into(block[: min(size, BLOCK_SIZE)], 0, socket.MSG_WAITALL)
            if count == 0:
                raise ConnectionError(f"the sender left {size} bytes early")
            out.write(block[:count])
            size -= count


def main(file: Path, size: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection, _ = listening.accept()
    cpu_before, began = time.process_time(), time.monotonic()
    with connection:
        receive(connection, file, size)
    figures = {
        "cpu_seconds": time.process_time() - cpu_before,
        "seconds": time.monotonic() - began,
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    os.unlink(file)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
