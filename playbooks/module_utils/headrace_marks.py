"""Marks of drained hosts: a host whose mark is there has its services stopped until somebody restores it.

A mark is a file `drained/HOST.json` in the host's folder of configuration, so that every machine that plays run on
sees it, and a boot leaves it. Only the standard library, in Python 3.9.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

FOLDER = "drained"
SUFFIX = ".json"


class MarkError(Exception):
    """A file in a mark's place cannot be read as one; the message is a sentence."""


class Mark(NamedTuple):
    """Who drained a host, why, and since when (ISO 8601, UTC)."""

    host: str
    who: str
    why: str
    since: str


def path_of(config_dir: str, host: str) -> str:
    return os.path.join(config_dir, FOLDER, host + SUFFIX)


def text_of(mark: Mark) -> str:
    return json.dumps(mark._asdict(), indent=2) + "\n"


def parse(text: str) -> Mark:
    """Raises ValueError for what is no mark."""
    found = json.loads(text)
    if not isinstance(found, dict) or set(found) != set(Mark._fields):
        raise ValueError(f"it holds something else than {', '.join(Mark._fields)}")
    return Mark(**{name: str(value) for name, value in found.items()})


def read(path: str) -> Mark | None:
    """The mark in that file, or None when the host is not drained; raises MarkError."""
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise MarkError(
            f"{path} is no mark of a drained host ({error}): remove it, or drain again."
        ) from error


def read_all(config_dir: str) -> list[Mark]:
    """The marks of all hosts that this machine is, by name; raises MarkError."""
    folder = os.path.join(config_dir, FOLDER)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [read(os.path.join(folder, name)) for name in names if name.endswith(SUFFIX)]
    return [mark for mark in found if mark is not None]


def sentence(mark: Mark) -> str:
    """What plays and statuses say of a drained host."""
    return f"{mark.host} is drained since {mark.since} by {mark.who}: {mark.why}"


def intention(mark: Mark) -> str:
    """What is said instead where nothing is changed."""
    return f"{mark.host} would be drained by {mark.who}: {mark.why}"
