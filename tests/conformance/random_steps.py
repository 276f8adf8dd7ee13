"""What a random session is made of: requests, with place holders for what only a broker knows."""

from __future__ import annotations

from typing import NamedTuple

from sessions import Message


class Name(NamedTuple):
    """A topic's name without the prefix of the run."""

    plain: str


class TopicId(NamedTuple):
    """The id of the newest topic of that name that was seen, or one that no topic has."""

    plain: str


class SessionId(NamedTuple):
    """The fetch session granted last, when `off_by` is 0."""

    off_by: int


class SessionEpoch(NamedTuple):
    """The epoch that is due in the fetch session granted last, when `off_by` is 0."""

    off_by: int


class Step(NamedTuple):
    """A request; `tagged` adds a tagged field that no version knows."""

    key: int
    version: int
    message: Message
    tagged: bool = False


class LogDir(NamedTuple):
    """The path of one of the broker's data directories."""

    name: str


class Roll(NamedTuple):
    """A record that begins a new segment, whatever the topic's settings are."""

    topic: Name
    partition: int


class Fill(NamedTuple):
    """Sound batches with keys, and a new segment after each group of them."""

    topic: Name
    partition: int
    groups: list[list[bytes]]


class Clean(NamedTuple):
    """Compaction of all that can be compacted, with these settings of the topic."""

    topic: Name
    configs: dict[str, str]


class Retire(NamedTuple):
    """Retention with these settings of the topic, which then keeps everything again."""

    topic: Name
    configs: dict[str, str]


class Move(NamedTuple):
    """A replica to another data directory, and `records` that are appended meanwhile."""

    topic: Name
    partition: int
    directory: LogDir
    records: bytes


class Restart(NamedTuple):
    """The broker ends, cleanly or by SIGKILL, and is started again."""

    is_killed: bool


Event = Roll | Fill | Clean | Retire | Move | Restart
