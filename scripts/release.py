"""Makes a release: `dist/headrace-VERSION/` with a bundle for each group of hosts and the manifest of their hashes.

`make release` runs it. Owns the order of the work and what is said meanwhile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import release_bundles
import release_wheels
from release_contents import (
    BUNDLES,
    EXTRAS,
    FROM_SOURCE,
    OLDEST_READER,
    ZOOKEEPER,
    Pin,
    ReleaseError,
    checked_version,
    closure,
    pinned,
    pins,
)

CHECKOUT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ("pyproject.toml", "README.md", "LICENSE", "broker", "mirror", "pipeline")
"""What headrace's own wheel is built from."""


def say(sentence: str) -> None:
    print(sentence, flush=True)


def git(*arguments: str) -> str:
    try:
        result = subprocess.run(("git", *arguments), cwd=CHECKOUT, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        raise ReleaseError(
            f"{CHECKOUT} is no git checkout: a release names the commit that it is made of."
        ) from None
    return result.stdout


def required_by(name: str) -> Sequence[str]:
    try:
        return distribution(name).requires or []
    except PackageNotFoundError:
        raise ReleaseError(f"{name} is not installed in this checkout's .venv: run make setup.") from None


def make(version: str, bundles: Sequence[str], parent: Path) -> Path:
    """Build the bundles into the folder of that version, and return it; an older folder is replaced at the end.

    Raises:
        ReleaseError: something cannot be fetched or built.
    """
    about = release_bundles.About(
        version=checked_version(version),
        commit=git("rev-parse", "HEAD").strip(),
        is_modified=bool(git("status", "--porcelain")),
        python=release_wheels.python_version(),
        machine=release_wheels.machine(),
        oldest_reader=OLDEST_READER,
    )
    modified = ", and what is not committed" if about.is_modified else ""
    say(f"headrace {version} of {about.commit[:12]}{modified}, for Python {about.python} on {about.machine}")
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=".release-") as temporary:
        folder, own = Path(temporary) / "whole", Path(temporary) / "own"
        folder.mkdir()
        contents = all_contents(version, bundles, own)
        entries = {}
        for name in bundles:
            entry = release_bundles.write_bundle(folder / f"{name}.tar", contents[name])
            entries[name] = entry
            say(f"  {entry['file']:<14} {entry['size'] / 1e6:7.1f} MB, {len(entry['files'])} files")
        release_bundles.write_manifest(folder, about, entries)
        return replace(parent / f"headrace-{version}", folder)


def replace(target: Path, folder: Path) -> Path:
    if target.exists():
        target.rename(folder.with_name("replaced"))
    folder.rename(target)
    target.chmod(0o755)
    return target


def all_contents(version: str, bundles: Sequence[str], own: Path) -> dict[str, dict[str, Path | bytes]]:
    """Return the files of each bundle by their names in it; headrace's own wheel is built into the folder `own`."""
    contents: dict[str, dict[str, Path | bytes]] = {}
    if ZOOKEEPER in bundles:
        contents[ZOOKEEPER] = {f"{ZOOKEEPER}/{jar.name}": jar for jar in release_wheels.jars(say)}
    needed = pins_by_bundle([name for name in bundles if name in EXTRAS])
    if needed:
        wheels = all_wheels({pin.name: pin for found in needed.values() for pin in found})
        own.mkdir()
        say("Building the wheel of headrace")
        names = git("ls-files", "--cached", "--others", "--exclude-standard", *SOURCES).splitlines()
        own_wheel = release_wheels.own_wheel(CHECKOUT, names, version, own)
        for name, found in needed.items():
            contents[name] = python_bundle([own_wheel, *(wheels[pin.name] for pin in found)])
    return contents


def pins_by_bundle(names: Sequence[str]) -> dict[str, list[Pin]]:
    project: dict[str, Any] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    locked = pins((CHECKOUT / "requirements.lock").read_text(encoding="utf-8"))
    return {name: pinned(closure(project, EXTRAS[name], required_by), locked) for name in names}


def all_wheels(wanted: dict[str, Pin]) -> dict[str, Path]:
    """Return a wheel of each pin by its name."""
    published = [pin for name, pin in sorted(wanted.items()) if name not in FROM_SOURCE]
    found = {release_wheels.wheel_pin(path).name: path for path in release_wheels.fetched(published, say)}
    tools = CHECKOUT / "requirements-build.lock"
    for name in sorted(FROM_SOURCE & wanted.keys()):
        found[name] = release_wheels.built(wanted[name], tools, say)
    return found


def python_bundle(wheels: Sequence[Path]) -> dict[str, Path | bytes]:
    lines = sorted(release_wheels.wheel_pin(wheel).line() for wheel in wheels)
    members: dict[str, Path | bytes] = {f"wheels/{wheel.name}": wheel for wheel in wheels}
    return {"requirements.txt": "".join(f"{line}\n" for line in lines).encode(), **members}


def main() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parser = argparse.ArgumentParser(description="Make a release for hosts: bundles with their hashes.")
    parser.add_argument(
        "--version", default=project["version"], help="its version; pyproject.toml's by default"
    )
    parser.add_argument("--bundles", nargs="+", choices=BUNDLES, default=BUNDLES, help="only these bundles")
    parser.add_argument(
        "--output", type=Path, default=CHECKOUT / "dist", help="where its folder goes, instead of dist"
    )
    options = parser.parse_args()
    try:
        folder = make(options.version, list(options.bundles), options.output.absolute())
    except ReleaseError as error:
        sys.exit(str(error))
    say(f"The release is in {folder}")


if __name__ == "__main__":
    main()
