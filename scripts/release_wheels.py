"""The wheels and jars of a release: fetched with their hashes, or built so that two builds are equal, and kept in a cache.

Owns the cache (`headrace` in the user's cache folder; each entry is whole or not there) and how pip, hatchling and Maven are
called. It must not know which bundle an archive goes into.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from packaging.utils import parse_wheel_filename
from release_contents import Pin, ReleaseError, with_version

EPOCH: Final = 1580601600
"""The time, in seconds, of every file in an archive made here: the one that hatchling uses too."""
GLIBC_MINORS: Final = range(5, 35)
"""Wheels for glibc 2.34 and older run on Debian 12 (2.36) and on Amazon Linux 2023 (2.34)."""
POM: Final = Path(__file__).with_name("zookeeper") / "pom.xml"
MAVEN_TIMEOUT_S: Final = 240
_ERROR_CHARACTERS_MAX: Final = 1500


def python_version() -> str:
    """Return the minor version of the Python that the wheels are for: the one of the virtual environment."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def machine() -> str:
    return platform.machine()


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "release"


@cache
def sha256(path: Path) -> str:
    """Return the digest of a file that does not change while a release is made."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run(*command: str | Path, timeout_s: float | None = None, cwd: Path | None = None) -> None:
    """Run a program that builds or fetches, with what makes its archives reproducible.

    Raises:
        ReleaseError: it fails; the message ends with what it said.
    """
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=cwd,
            timeout=timeout_s,
            umask=0o022,
        )
    except FileNotFoundError:
        raise ReleaseError(f"{command[0]} is not installed: run make release, which installs it.") from None
    except subprocess.TimeoutExpired:
        raise ReleaseError(f"{command[0]} did not end within {timeout_s} s: try again.") from None
    if result.returncode != 0:
        said = (result.stdout + result.stderr).strip()[-_ERROR_CHARACTERS_MAX:]
        raise ReleaseError(f"{' '.join(map(str, command[:4]))} … failed: {said}")


@contextmanager
def _new(folder: Path) -> Iterator[Path]:
    """An empty folder beside that one, which becomes it when all went well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as temporary:
        made = Path(temporary) / folder.name
        made.mkdir()
        yield made
        # Another build may have made the same meanwhile.
        if not folder.is_dir():
            made.rename(folder)


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join((python_version(), machine(), *parts)).encode()).hexdigest()[:16]


def fetched(pins: Sequence[Pin], say: Callable[[str], None]) -> list[Path]:
    """Return a wheel of each of the pins, from the cache or the package index."""
    text = "".join(f"{pin.line()}\n" for pin in pins)
    folder = cache_folder() / f"wheels-{_key(text)}"
    if not folder.is_dir():
        say(f"Fetching {len(pins)} wheels")
        with _new(folder) as made, tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            run(*_download_command(), "--dest", made, "--requirement", file.name)
    digests = {digest for pin in pins for digest in pin.digests}
    return _whole(folder, lambda wheel: sha256(wheel) in digests)


def _whole(folder: Path, is_right: Callable[[Path], bool]) -> list[Path]:
    """Return the cached files, or end with what to do when the disk has changed one since."""
    wrong = [path for path in folder.iterdir() if not is_right(path)]
    if wrong:
        raise ReleaseError(f"{wrong[0]} is not what its hash says: remove {folder} and try again.")
    return sorted(folder.iterdir())


def _download_command() -> list[str]:
    platforms = [f"manylinux_2_{minor}_{machine()}" for minor in GLIBC_MINORS]
    options = [f"--platform={each}" for each in (*platforms, f"manylinux2014_{machine()}")]
    strict = ["--no-deps", "--require-hashes", "--only-binary=:all:", f"--python-version={python_version()}"]
    return [sys.executable, "-m", "pip", "download", "--quiet", *strict, *options]


def built(pin: Pin, tools: Path, say: Callable[[str], None]) -> Path:
    """Return the wheel of a pin whose maker publishes only a source, built with pinned tools."""
    folder = (
        cache_folder() / f"{pin.name}-{pin.version}-{_key(pin.line(), tools.read_text(encoding='utf-8'))}"
    )
    if not folder.is_dir():
        say(f"Building the wheel of {pin.name} {pin.version} from its source (kept for the next time)")
        with _new(folder) as made, tempfile.TemporaryDirectory() as temporary:
            python = Path(temporary) / "venv" / "bin" / "python"
            run(sys.executable, "-m", "venv", python.parents[1])
            pip = (python, "-m", "pip")
            run(*pip, "install", "--quiet", "--no-deps", "--require-hashes", "--requirement", tools)
            requirement = Path(temporary) / "requirement.txt"
            requirement.write_text(f"{pin.line()}\n", encoding="utf-8")
            # Its jars are compressed already.
            stored = "--config-settings=--build-option=--compression=stored"
            isolated = ("--no-deps", "--no-build-isolation", "--require-hashes", stored)
            run(*pip, "wheel", "--quiet", *isolated, "--wheel-dir", made, "--requirement", requirement)
            wheel = next(made.iterdir())
            (made / sha256(wheel)).mkdir()
            wheel.rename(made / sha256(wheel) / wheel.name)
    named_by_digest = next(folder.iterdir())
    return _whole(named_by_digest, lambda wheel: sha256(wheel) == named_by_digest.name)[0]


def own_wheel(checkout: Path, files: Iterable[str], version: str, folder: Path) -> Path:
    """Build headrace's own wheel from these files of the checkout, as that version, into the folder."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary)
        for name in files:
            if (checkout / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(checkout / name, source / name)
        project = source / "pyproject.toml"
        project.write_text(with_version(project.read_text(encoding="utf-8"), version), encoding="utf-8")
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    return next(folder.glob("headrace-*.whl"))


def wheel_pin(wheel: Path) -> Pin:
    """Return the pin of that one wheel."""
    name, version, _, _ = parse_wheel_filename(wheel.name)
    return Pin(str(name), str(version), (sha256(wheel),))


def jars(say: Callable[[str], None]) -> list[Path]:
    """Return ZooKeeper's jars, each of which is what SHA256SUMS says.

    Raises:
        ReleaseError: Maven is missing or fails, or a jar is another one.
    """
    sums = POM.with_name("SHA256SUMS").read_text(encoding="utf-8")
    folder = cache_folder() / f"zookeeper-{_key(POM.read_text(encoding='utf-8'), sums)}"
    digests = {name: digest for digest, name in (line.split() for line in sums.splitlines())}
    if not folder.is_dir():
        say("Fetching ZooKeeper's jars")
        with _new(folder) as made:
            goal = ("dependency:copy-dependencies", f"-DoutputDirectory={made}")
            run("mvn", "-q", "-B", "-f", POM, *goal, timeout_s=MAVEN_TIMEOUT_S)
            if {path.name for path in made.iterdir()} != digests.keys():
                raise ReleaseError(f"Maven did not fetch the jars that {POM.parent}/SHA256SUMS names.")
    return _whole(folder, lambda jar: sha256(jar) == digests[jar.name])
