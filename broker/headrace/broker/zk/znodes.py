"""What is in ZooKeeper, what a transaction does there, and how it refuses: values alone, without kazoo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ANY_VERSION = -1


class ZooKeeperError(Exception):
    """ZooKeeper refused a request, of a transaction the operation at `index`.

    `is_repeated`: the request had been sent before and was interrupted, so it may have met its own first attempt.
    """

    index: int = 0
    is_repeated: bool = False


class NoZnodeError(ZooKeeperError):
    """There is no such znode (or no such parent)."""


class ZnodeExistsError(ZooKeeperError):
    """The znode is there already."""


class ZnodeVersionError(ZooKeeperError):
    """The znode is not of the version that the request named: somebody else was faster."""


class ZooKeeperClosedError(ZooKeeperError):
    """The session was ended by this broker, or was lost before the request could be repeated in it."""


class Znode(NamedTuple):
    """A znode's content and the parts of its stat that matter here."""

    data: bytes
    version: int
    creation_zxid: int
    ephemeral_owner: int
    created_ms: int
    modified_zxid: int = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode; with `sequence` the server appends ten digits to the path."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a znode's content when it is of this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the transaction unless the znode is of this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode when it is of this version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Check | Delete
