"""The release that hosts shall get, as it lies on this machine: looked at before anything is sent to any of them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from headrace_inventory.addresses import MEMBERS, Groups, HostVars

BUNDLES = ("audit", "broker", "load", "registry", "zookeeper")
PIECE_BYTES = 1 << 20


class BundleError(Exception):
    """Why a release cannot be given to hosts; the message is a sentence."""


def module_utils(name: str) -> Any:
    """What modules share; Ansible gives it to them on the hosts alone."""
    path = Path(__file__).parents[1] / "module_utils" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


releases = module_utils("headrace_releases")


def manifest_of(folder: str, version: str, bundles: Iterable[str]) -> dict[str, Any]:
    """What a release says of itself.

    Raises:
        BundleError: there is none, it is another one, or it lacks one of these bundles.
    """
    try:
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            manifest: dict[str, Any] = json.load(file)
    except OSError as error:
        raise BundleError(
            f"There is no release in {folder} ({error.strerror}): make it with `make release`, or say in release_dir where "
            "it is."
        ) from error
    except ValueError as error:
        raise BundleError(f"{folder}/manifest.json is damaged: make the release anew.") from error
    if manifest["version"] != version:
        raise BundleError(
            f"{folder} holds the release {manifest['version']}, and release_version is {version}: make that one with "
            f"`make release VERSION={version}`."
        )
    missing = [name for name in bundles if name not in manifest["bundles"]]
    if missing:
        raise BundleError(f"The release in {folder} has no bundle {missing[0]}: make it with `make release`.")
    return manifest


def folder_of(host: str, hostvars: HostVars, playbooks: str) -> tuple[str, str]:
    """The folder and the version of the release that a host shall get."""
    version = str(hostvars[host]["release_version"])
    folder = hostvars[host].get("release_dir") or os.path.join(
        os.path.dirname(playbooks), "dist", f"headrace-{version}"
    )
    return str(folder), version


def bundles_of(host: str, hostvars: HostVars, groups: Groups) -> list[str]:
    own = hostvars[host].get("release_bundles")
    if own is not None:
        return list(own)
    # A member of a mirror is a program of that bundle, too.
    wanted = {name for name in BUNDLES if host in groups.get(name, [])}
    return sorted(wanted | ({"broker"} if host in groups.get(MEMBERS, []) else set()))


def wanted_python(host: str, hostvars: HostVars, playbooks: str) -> dict[str, str]:
    """The Python and the processor that the host's release is for."""
    manifest = manifest_of(*folder_of(host, hostvars, playbooks), ())
    return {"version": manifest["python"], "machine": manifest["machine"]}


def release_problems(hosts: Iterable[str], hostvars: HostVars, groups: Groups, playbooks: str) -> list[str]:
    """One sentence for each thing wrong with the releases that these hosts shall get; bundles that none needs are not read."""
    problems: dict[str, None] = {}
    for host in hosts:
        folder, version = folder_of(host, hostvars, playbooks)
        names = bundles_of(host, hostvars, groups)
        try:
            manifest = manifest_of(folder, version, names)
        except BundleError as error:
            problems[str(error)] = None
            continue
        for bundle in releases.covering(manifest["bundles"], names).values():
            problem = bundle_problem(folder, bundle)
            if problem is not None:
                problems[problem] = None
    return list(problems)


def bundle_problem(folder: str, bundle: dict[str, Any]) -> str | None:
    path = os.path.join(folder, bundle["file"])
    advice = "make the release anew with `make release`, or copy it once more"
    try:
        found = os.stat(path)
    except OSError as error:
        return f"{path} is in the release's manifest and cannot be read ({error.strerror}): {advice}."
    if found.st_size != bundle["size"]:
        return (
            f"{path} has {found.st_size} bytes, and the release's manifest says {bundle['size']}: {advice}."
        )
    digest = digest_of(path, found.st_mtime_ns)
    if digest == bundle["sha256"]:
        return None
    return f"{path} has the SHA-256 {digest}, and the release's manifest says {bundle['sha256']}: {advice}."


@cache
def digest_of(path: str, mtime_ns: int) -> str:
    """Read once a process: a task has it asked for several times."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
