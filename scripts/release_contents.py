"""What is in a release: the bundle that each group of hosts gets, and the distributions of each bundle with their pins.

Owns what follows from pyproject.toml, requirements.lock and the requirements that installed distributions state. It must not
touch files or the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

NAME: Final = "headrace"
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "broker": ("broker", "mirror"),
    "registry": ("registry",),
    "audit": ("audit",),
    "load": ("load",),
}
"""The bundles of Python distributions by the group of hosts that gets them, and the extras that each is made of."""
ZOOKEEPER: Final = "zookeeper"
"""The bundle of ZooKeeper's jars, which holds no Python."""
BUNDLES: Final = (*EXTRAS, ZOOKEEPER)
FROM_SOURCE: Final = frozenset({"pure-sasl", "pyspark"})
"""Distributions that their makers publish without a wheel."""
OLDEST_READER: Final = "0.1.0"
"""The oldest release that reads what this one writes; to go back further is refused."""

_PIN: Final = re.compile(
    r"^([a-z0-9][a-z0-9._-]*)(?:\[[a-z0-9,_-]+\])?==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)"
)


class ReleaseError(Exception):
    """Why a release cannot be made, and what to do."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A distribution at one version, whose archives have one of these SHA-256 digests."""

    name: str
    version: str
    digests: tuple[str, ...]

    def line(self) -> str:
        """Return the pin as a line of a requirements file."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{each}" for each in self.digests)])


def checked_version(text: str) -> str:
    """Return a version that wheels, folders and people write in the same way.

    Raises:
        ReleaseError: it is none.
    """
    try:
        normal = str(Version(text))
    except InvalidVersion:
        raise ReleaseError(f"The version {text!r} is none: write it like 1.2.0 or 1.2.0+lab.1.") from None
    if normal != text:
        raise ReleaseError(f"The version {text!r} is written {normal!r}: use that.")
    return text


def pins(lock: str) -> dict[str, Pin]:
    """Return the pins of a requirements file with hashes, by their names."""
    found: dict[str, Pin] = {}
    for line in lock.replace(" \\\n", "\n").replace("\n    --hash", " --hash").splitlines():
        if match := _PIN.match(line):
            name = canonicalize_name(match[1])
            digests = tuple(part.removeprefix("--hash=sha256:") for part in match[3].split())
            found[name] = Pin(name, match[2], digests)
    return found


def closure(
    project: Mapping[str, Any], extras: Iterable[str], requires: Callable[[str], Sequence[str]]
) -> list[str]:
    """Return the names of what a host with these extras needs beside the distribution itself, sorted.

    Args:
        project: pyproject.toml's table `project`.
        extras: its optional dependencies that the host needs.
        requires: what an installed distribution states as `Requires-Dist`.
    """
    todo: list[tuple[str, str]] = [(NAME, extra) for extra in ("", *extras)]
    seen: set[tuple[str, str]] = set()
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for requirement in map(Requirement, _stated(project, name, extra, requires)):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed = canonicalize_name(requirement.name)
                todo += [(needed, each) for each in ("", *requirement.extras)]
    return sorted({name for name, _ in seen} - {NAME})


def _stated(
    project: Mapping[str, Any], name: str, extra: str, requires: Callable[[str], Sequence[str]]
) -> Sequence[str]:
    if name != NAME:
        return requires(name)
    stated: Sequence[str] = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return stated


def pinned(names: Iterable[str], locked: Mapping[str, Pin]) -> list[Pin]:
    """Return the pins of these names.

    Raises:
        ReleaseError: the lock lacks one.
    """
    wanted = list(names)
    missing = [name for name in wanted if name not in locked]
    if missing:
        raise ReleaseError(f"requirements.lock has no {', '.join(missing)}: lock it anew.")
    return [locked[name] for name in wanted]


def with_version(pyproject: str, version: str) -> str:
    """Return pyproject.toml's text with that version of the project."""
    return re.sub(r'(?m)^version = ".*"$', f'version = "{version}"', pyproject, count=1)
