"""Releases as they lie on a host: what is installed, a new one built beside them, and which may go.

Invariants: a folder `releases/VERSION` holds a whole installation, since it is built under another name, written to the disk
and only then renamed; its stamp says of what; one that something runs from is neither replaced nor removed. Runs in the host's
own Python, 3.9 or later.
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

STAMP = "release.json"
# In a release's folder, as old as the last time that `current` was made to name it.
WAS_CURRENT = ".was-current"
# Names that are no version: what is being made, and what is being removed.
MAKING, REMOVING = ".making-", ".removing-"
REQUIREMENTS = "requirements.txt"
PIECE_BYTES = 1 << 20
LOCK_TIMEOUT_S = 600
# Between two pieces of a bundle.
FETCH_TIMEOUT_S = 60
SAID_CHARACTERS_MAX = 1500
AT_FDCWD, RENAME_EXCHANGE = -100, 2
REMOVE_BROKEN_BYTECODE = """
import marshal, pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*.pyc"):
    try:
        marshal.loads(path.read_bytes()[16:])
    except (EOFError, ValueError, TypeError):
        path.unlink()
"""
# Where a Python keeps the wheel of pip that it makes virtual environments with, as its module ensurepip finds it.
ABOUT_PYTHON = """
import glob, os, platform, sys, sysconfig
try:
    import ensurepip
    bundled = os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
    wheels = glob.glob(os.path.join(sysconfig.get_config_var("WHEEL_PKG_DIR") or bundled, "pip-*.whl"))
except ImportError:
    wheels = []
print("%d.%d" % sys.version_info[:2], platform.machine(), (wheels or [""])[0], sep="\\n")
"""


class ReleaseError(Exception):
    """Why a release cannot be installed; the message is a sentence."""


def folder_of(home: str, version: str) -> str:
    return os.path.join(home, "releases", version)


def stamp_of(folder: str) -> dict[str, Any] | None:
    """What a whole installation says of itself; None where there is none."""
    try:
        with open(os.path.join(folder, STAMP), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found


def archives(bundles: dict[str, Any]) -> dict[str, str]:
    """The digest of every wheel and jar of these bundles by its name; what several have is there once."""
    return {
        name: entry["sha256"]
        for bundle in bundles.values()
        for name, entry in bundle["files"].items()
        if name != REQUIREMENTS
    }


def covering(bundles: dict[str, Any], wanted: Iterable[str]) -> dict[str, Any]:
    """Those of the wanted bundles that are enough: one whose archives others have as well is left out."""
    chosen = {name: bundles[name] for name in wanted}
    for name in sorted(chosen, key=lambda name: len(chosen[name]["files"])):
        others = archives({other: bundle for other, bundle in chosen.items() if other != name})
        if len(chosen) > 1 and archives({name: chosen[name]}).items() <= others.items():
            del chosen[name]
    return chosen


def has_all(stamp: dict[str, Any] | None, bundles: dict[str, Any]) -> bool:
    return stamp is not None and archives(bundles).items() <= stamp["files"].items()


def contradictions(stamp: dict[str, Any], bundles: dict[str, Any]) -> list[str]:
    """The archives that the installed release has with another content."""
    wanted = archives(bundles)
    return sorted(
        name for name in wanted.keys() & stamp["files"].keys() if wanted[name] != stamp["files"][name]
    )


def merged_requirements(texts: Iterable[str]) -> str:
    """The lines of several requirements files, each once: bundles of one release pin a distribution in the same way."""
    return "".join(f"{line}\n" for line in sorted({line for text in texts for line in text.splitlines()}))


def fetched(place: str, target: str) -> str:
    """The path of a bundle: the place itself, or the target when the place is an address, from which it is fetched."""
    if "://" not in place:
        return place
    try:
        with urllib.request.urlopen(place, timeout=FETCH_TIMEOUT_S) as answer, open(target, "wb") as file:
            shutil.copyfileobj(answer, file, PIECE_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise ReleaseError(f"A bundle cannot be fetched from {place.split('?')[0]}: {error}.") from error
    return target


def check_digest(path: str, bundle: dict[str, Any]) -> None:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    if digest.hexdigest() != bundle["sha256"]:
        raise ReleaseError(
            f"{bundle['file']} arrived with SHA-256 {digest.hexdigest()}, and the manifest says {bundle['sha256']}: "
            "nothing was installed. Make the release anew if it is so in its folder, or try again."
        )


def unpack(path: str, bundle: dict[str, Any], folder: str) -> None:
    """Unpack a bundle whose digest is right; it holds the files that the manifest names and nothing else."""
    with tarfile.open(path) as tar:
        for member in tar:
            if member.name not in bundle["files"] or not member.isreg():
                raise ReleaseError(
                    f"{bundle['file']} holds {member.name}, of which the manifest says nothing."
                )
            target = os.path.join(folder, member.name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            source = tar.extractfile(member)
            assert source is not None
            with source, open(target, "wb") as file:
                shutil.copyfileobj(source, file, PIECE_BYTES)


def run(*command: str) -> str:
    """Run a program with none of the environment's settings for pip or Python."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
    try:
        result = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env=environment,
            cwd="/",
        )
    except OSError as error:
        raise ReleaseError(f"{command[0]} cannot be run: {error.strerror}.") from error
    if result.returncode != 0:
        shown = " ".join(word for word in command[:3] if "\n" not in word)
        raise ReleaseError(f"`{shown} …` failed: {result.stdout.strip()[-SAID_CHARACTERS_MAX:]}")
    return result.stdout


def checked_pip(python: str, release: dict[str, Any]) -> str:
    """The wheel of pip that comes with this Python, for which the release's wheels are."""
    if shutil.which(python) is None:
        raise ReleaseError(
            f"{python} is not installed: install Python {release['python']} or name it in release_python."
        )
    version, machine, pip = run(python, "-c", ABOUT_PYTHON).splitlines()
    if (version, machine) != (release["python"], release["machine"]):
        raise ReleaseError(
            f"The release is for Python {release['python']} on {release['machine']}, and {python} is {version} on {machine}: "
            "name another in release_python, or make the release where these are the same."
        )
    if not pip:
        raise ReleaseError(f"{python} comes without pip's wheel: install the package python3-venv.")
    return pip


def make_environment(python: str, pip: str, folder: str, final: str, unpacked: str) -> None:
    """Make a virtual environment in `folder` that works once it is renamed to `final`.

    pip runs from its wheel: to install it as well would take as long as all else.
    """
    run(python, "-m", "venv", "--without-pip", folder)
    own = os.path.join(folder, "bin", "python")
    strict = ("--isolated", "--no-index", "--no-deps", "--require-hashes", "--no-cache-dir")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-compile", "--no-warn-script-location")
    wheels = ("--find-links", os.path.join(unpacked, "wheels"))
    requirements = ("--requirement", os.path.join(unpacked, REQUIREMENTS))
    run(own, os.path.join(pip, "pip"), "install", *strict, *quiet, *wheels, *requirements)
    relocate(folder, final)
    # Users of services may not write here. What is no Python for this version, such as a template, is passed over.
    compiled = ("-m", "compileall", "-q", "-j", "0", "-s", folder, "-p", final, os.path.join(folder, "lib"))
    subprocess.run([own, *compiled], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    remove_broken_bytecode(own, os.path.join(folder, "lib"))


def remove_broken_bytecode(python: str, folder: str) -> None:
    """Remove what that Python could not load; it takes the source instead.

    On a disk that is full for a moment Python writes bytecode in part and says nothing.
    """
    run(python, "-c", REMOVE_BROKEN_BYTECODE, folder)


def relocate(folder: str, final: str) -> None:
    """Have the environment's programs name the folder that it will have."""
    for path in [*glob.glob(os.path.join(folder, "bin", "*")), os.path.join(folder, "pyvenv.cfg")]:
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            content = file.read()
        if folder.encode() in content:
            with open(path, "wb") as file:
                file.write(content.replace(folder.encode(), final.encode()))


def write_stamp(folder: str, release: dict[str, Any]) -> None:
    stamp = {key: release[key] for key in ("version", "commit", "python", "machine", "oldest_reader")}
    stamp["files"] = archives(release["bundles"])
    with open(os.path.join(folder, STAMP), "w", encoding="utf-8") as file:
        json.dump(stamp, file, indent=1, sort_keys=True)
        file.write("\n")


def install(home: str, python: str, release: dict[str, Any], places: dict[str, str]) -> None:
    """Build the release from its bundles at these places, and put it where its version's folder is.

    Raises:
        ReleaseError: a bundle is another one than the manifest's, or the host's Python is.
    """
    final = folder_of(home, release["version"])
    folder = tempfile.mkdtemp(prefix=MAKING, dir=os.path.dirname(final))
    try:
        os.chmod(folder, 0o755)
        with tempfile.TemporaryDirectory(dir=folder) as received:
            here = {name: fetched(places[name], os.path.join(received, name)) for name in release["bundles"]}
            for name, bundle in release["bundles"].items():
                check_digest(here[name], bundle)
            build(folder, final, python, release, here)
        run("sync", "-f", folder)
        put(folder, final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build(folder: str, final: str, python: str, release: dict[str, Any], places: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as unpacked:
        texts = []
        for name, bundle in release["bundles"].items():
            unpack(places[name], bundle, unpacked)
            if REQUIREMENTS in bundle["files"]:
                with open(os.path.join(unpacked, REQUIREMENTS), encoding="utf-8") as file:
                    texts.append(file.read())
        if texts:
            pip = checked_pip(python, release)
            with open(os.path.join(unpacked, REQUIREMENTS), "w", encoding="utf-8") as file:
                file.write(merged_requirements(texts))
            make_environment(python, pip, folder, final, unpacked)
        for name in os.listdir(unpacked):
            if name not in ("wheels", REQUIREMENTS):
                os.rename(os.path.join(unpacked, name), os.path.join(folder, name))
    write_stamp(folder, release)


def put(folder: str, final: str) -> None:
    """Rename the folder; what had the name before gets the folder's, in one step."""
    if not os.path.lexists(final):
        os.rename(folder, final)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(folder), AT_FDCWD, os.fsencode(final), RENAME_EXCHANGE) != 0:
        error = ctypes.get_errno()
        raise ReleaseError(f"{final} cannot be replaced: {os.strerror(error)}.")


def users(folder: str) -> list[str]:
    """What runs from the folder or is defined to: processes by their numbers, systemd's units by their names."""
    marker = os.fsencode(folder) + b"/"
    found = []
    paths = [*glob.glob("/proc/[0-9]*/cmdline"), *glob.glob("/etc/systemd/system/headrace-*.service")]
    for path in paths:
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            continue
        if marker in content:
            process = path.startswith("/proc/")
            found.append(f"process {path.split('/')[2]}" if process else os.path.basename(path))
    return found


def stamps(home: str) -> list[dict[str, Any]]:
    """What each whole installation says of itself, the newest first."""
    paths = glob.glob(os.path.join(glob.escape(os.path.join(home, "releases")), "*", STAMP))
    by_age = sorted(paths, key=lambda path: (os.path.getmtime(path), path), reverse=True)
    found = [stamp_of(os.path.dirname(path)) for path in by_age]
    return [stamp for stamp in found if stamp is not None]


def removable(home: str, version: str, keep: int) -> list[str]:
    """The versions, oldest first, that are neither this one, nor the current one, nor among the newest, nor in use.

    One that was current is newer than one that never was: people go back to what worked, not to what was taken back.
    """
    now = os.path.basename(current_of(home) or "")
    others = [stamp["version"] for stamp in stamps(home) if stamp["version"] not in (version, now)]
    others.sort(key=lambda each: was_current_at(home, each), reverse=True)
    spared = max(0, keep - 1 - (now not in ("", version)))
    return [each for each in reversed(others[spared:]) if not users(folder_of(home, each))]


def was_current_at(home: str, version: str) -> float:
    """When `current` was last made to name this release, in seconds of the epoch; 0 where it never was."""
    try:
        return os.path.getmtime(os.path.join(folder_of(home, version), WAS_CURRENT))
    except FileNotFoundError:
        return 0.0


def remove(home: str, version: str) -> None:
    """Remove a release; interrupted, it is no longer there under its name."""
    folder = folder_of(home, version)
    doomed = os.path.join(os.path.dirname(folder), f"{REMOVING}{version}")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_leftovers(home: str) -> None:
    """Remove what interrupted runs left; called while no other run is here."""
    for prefix in (MAKING, REMOVING):
        for path in glob.glob(os.path.join(glob.escape(os.path.join(home, "releases")), f"{prefix}*")):
            shutil.rmtree(path, ignore_errors=True)


def current_of(home: str) -> str | None:
    """What `current` names; a version's folder, relative to it."""
    try:
        return os.readlink(os.path.join(home, "current"))
    except OSError:
        return None


def link_current(home: str, version: str) -> None:
    link = os.path.join(home, "current")
    made = f"{link}.new"
    if os.path.lexists(made):
        os.unlink(made)
    os.symlink(os.path.join("releases", version), made)
    os.replace(made, link)
    with open(os.path.join(folder_of(home, version), WAS_CURRENT), "w", encoding="utf-8"):
        pass


@contextmanager
def alone(home: str) -> Iterator[None]:
    """Wait until no other run installs here: one whose Ansible was killed may still be at work."""
    os.makedirs(os.path.join(home, "releases"), exist_ok=True)
    with open(os.path.join(home, "releases", ".lock"), "w", encoding="utf-8") as file:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ReleaseError(
                        f"Another run has been installing into {home} for {LOCK_TIMEOUT_S} s."
                    ) from None
                time.sleep(0.2)
        yield
