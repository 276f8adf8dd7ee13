"""What a broker has of its host: each door to time, disk, network, threads and ZooKeeper, as values that are handed in.

Owns: the real ones. Whoever starts a broker elsewhere (a simulation) hands in others, and everything between the doors is the
same. Must not know what goes through them.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.broker.client.security import ClientSecurity
from headrace.broker.clock import Clock, SystemClock
from headrace.broker.config.listeners import Listener
from headrace.broker.config.sections import Network
from headrace.broker.log.files import Files, OsFiles
from headrace.broker.server.peers.requests import Connect, connector
from headrace.broker.server.sockets.listener import bind
from headrace.broker.zk.client import MakeKazoo, kazoo_client


class Pool(Protocol):
    """What opens and closes logs side by side."""

    def map(self, work: Callable[[Any], Any], values: Iterable[Any], /) -> Iterable[Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The doors; the defaults are the machine's own."""

    clock: Clock = field(default_factory=SystemClock)
    now: Callable[[], float] = time.monotonic
    """Seconds, by which turns are measured; the same time as the clock's `monotonic_ms`."""
    files: Callable[[Callable[[str, OSError], None]], Files] = OsFiles
    """The disk, which calls back with its failures, in any thread."""
    bind: Callable[[Listener, Network], socket.socket] = bind
    threads: Callable[[int], AbstractContextManager[Pool]] = ThreadPoolExecutor
    connector: Callable[[Callable[[], ClientSecurity], Callable[[], None]], Connect] = connector
    """What connects to other brokers, with the security that those want by then, and who hears of each that refuses."""
    kazoo: MakeKazoo = kazoo_client
