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
