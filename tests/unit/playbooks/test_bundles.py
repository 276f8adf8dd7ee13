"""A release is looked at where it lies: what is wrong with it gets a sentence before any host is touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_inventory.bundles import release_problems, wanted_python

GROUPS = {"broker": ["b1", "b2"], "load": ["l1"], "audit": ["l1"], "release": ["b1", "b2", "l1"]}


def release_in(folder: Path) -> dict[str, Any]:
    """A release of two bundles; that of the audit has nothing that the load's has not."""
    bundles = {}
    for name, wheels in (("broker", ["b"]), ("load", ["a", "s"]), ("audit", ["a"])):
        content = name.encode() * 100
        (folder / f"{name}.tar").write_bytes(content)
        bundles[name] = {
            "file": f"{name}.tar",
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "files": {f"wheels/{wheel}": {"sha256": wheel} for wheel in wheels},
        }
    found = {"version": "1.0", "python": "3.11", "machine": "x86_64", "bundles": bundles}
    (folder / "manifest.json").write_text(json.dumps(found))
    return found


def problems(folder: Path, *hosts: str, **variables: Any) -> list[str]:
    hostvars = {
        host: {"release_version": "1.0", "release_dir": str(folder), **variables}
        for host in GROUPS["release"]
    }
    return release_problems(hosts or GROUPS["release"], hostvars, GROUPS, "/nowhere/playbooks")


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[50] ^= 1
    file.write_bytes(content)


def test_a_whole_release_has_no_problems_and_names_its_python(tmp_path: Path) -> None:
    release_in(tmp_path)
    assert problems(tmp_path) == []
    variables = {"b1": {"release_version": "1.0", "release_dir": str(tmp_path)}}
    assert wanted_python("b1", variables, "") == {"version": "3.11", "machine": "x86_64"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (flip_a_bit, "broker.tar has the SHA-256 "),
        (
            lambda file: file.write_bytes(b"half"),
            "broker.tar has 4 bytes, and the release's manifest says 600: make the release",
        ),
        (
            Path.unlink,
            "broker.tar is in the release's manifest and cannot be read (No such file or directory): make",
        ),
    ],
)
def test_a_bundle_that_is_not_what_the_manifest_says_is_named(
    tmp_path: Path, change: Callable[[Path], None], told: str
) -> None:
    release_in(tmp_path)
    change(tmp_path / "broker.tar")
    (problem,) = problems(tmp_path)
    assert problem.startswith(f"{tmp_path}/{told}")
    assert problems(tmp_path, "l1") == []


def test_a_bundle_that_no_host_is_sent_is_not_looked_at(tmp_path: Path) -> None:
    release_in(tmp_path)
    flip_a_bit(tmp_path / "audit.tar")
    assert problems(tmp_path) == []
    (problem,) = problems(tmp_path, release_bundles=["audit"])
    assert problem.startswith(f"{tmp_path}/audit.tar has the SHA-256 ")


def test_a_release_that_is_not_there_or_another_is_told_once(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path)
    assert problem.startswith(
        f"There is no release in {tmp_path} (No such file or directory): make it with `make release`"
    )
    release_in(tmp_path)
    (problem,) = problems(tmp_path, release_version="2.0")
    assert problem == (
        f"{tmp_path} holds the release 1.0, and release_version is 2.0: make that one with `make release VERSION=2.0`."
    )
    (problem,) = problems(tmp_path, "b1", release_bundles=["registry"])
    assert problem == f"The release in {tmp_path} has no bundle registry: make it with `make release`."
    (tmp_path / "manifest.json").write_text("{")
    assert problems(tmp_path) == [f"{tmp_path}/manifest.json is damaged: make the release anew."]
    (problem,) = problems(tmp_path, release_dir=None)
    assert problem.startswith("There is no release in /nowhere/dist/headrace-1.0 ")
