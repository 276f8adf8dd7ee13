"""The road from a mirror to its source, which can be cut: nothing comes through any more, and no connection ends for that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mirror_clusters import Cluster
from processes import free_port

PIECE_SIZE = 65_536


class Road:
    """Listens on `near` for the server at `far`."""

    def __init__(self, near: int, far: int) -> None:
        self._far = far
        self._is_open = threading.Event()
        self._is_open.set()
        self._listener = socket.create_server(("127.0.0.1", near))
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Hold up all that is on its way, new connections too."""
        self._is_open.clear()
        try:
            yield
        finally:
            self._is_open.set()

    def end(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(here,), daemon=True).start()

    def _join(self, here: socket.socket) -> None:
        self._is_open.wait()
        try:
            there = socket.create_connection(("127.0.0.1", self._far))
        except OSError:
            here.close()
            return
        for one, other in ((here, there), (there, here)):
            threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while piece := one.recv(PIECE_SIZE):
                self._is_open.wait()
                other.sendall(piece)
        except OSError:
            pass
        finally:
            for end in (one, other):
                end.close()


def road_to(cluster: Cluster) -> tuple[Road, str]:
    """Give a cluster of one broker a listener at the end of a road; where it begins."""
    own, far, near = cluster.ports[0], free_port(), free_port()
    cluster.settings |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{own},FAR://127.0.0.1:{far}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{own},FAR://127.0.0.1:{near}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    cluster.kill_and_start(0)
    return Road(near, far), f"127.0.0.1:{near}"
