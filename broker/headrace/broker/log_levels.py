"""The levels at which parts of this process tell what happens, seen and changed while it runs (KIP-412).

A part is a logger by its full name (`headrace.broker.server.control.controller`), a package of them (`headrace.broker.server`), a
library's own logger, or `root`, from which all take their level that have none of their own. Levels have the names of
Kafka's clients. A change holds until the process ends, and is stored nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

ROOT = "root"
_OWN = "headrace"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""By name, the most talkative first."""


def loggers() -> dict[str, str]:
    """Each logger and package of them, and the level that it goes by."""
    return {ROOT: _name(logging.root.level)} | {
        name: _name(logging.getLogger(name).getEffectiveLevel()) for name in _names()
    }


def exists(name: str) -> bool:
    return name == ROOT or name in _names()


def set_level(name: str, level: str) -> None:
    """From now on; `level` is one of `LEVELS`."""
    _of(name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """The logger goes by its package's level from now on; `root` has none, and stays as it is."""
    if name != ROOT:
        _of(name).setLevel(logging.NOTSET)


def _of(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _names() -> list[str]:
    return sorted(_existing())


def _existing() -> Iterator[str]:
    for name, logger in logging.root.manager.loggerDict.items():
        # What is no logger yet stands for a package of them.
        if isinstance(logger, logging.Logger) or name.partition(".")[0] == _OWN:
            yield name


def _name(level: int) -> str:
    return next((name for name, least in reversed(LEVELS.items()) if level >= least), "TRACE")
