"""Bundles and manifest of a release, as files: two builds of the same contents have the same bytes.

Owns the format of the folder that hosts are installed from. It must not know where wheels and jars come from.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from release_wheels import EPOCH, sha256

MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a release says of itself."""

    version: str
    commit: str
    is_modified: bool
    python: str
    machine: str
    oldest_reader: str


def write_bundle(path: Path, members: Mapping[str, Path | bytes]) -> dict[str, Any]:
    """Write a tar of these files and return its entry in the manifest."""
    files = {}
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in sorted(members.items()):
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = 0o644, EPOCH
            with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
                info.size = file.seek(0, io.SEEK_END)
                file.seek(0)
                tar.addfile(info, file)
            files[name] = _entry_of(content)
    return {"file": path.name, **_entry_of(path), "files": files}


def _entry_of(content: Path | bytes) -> dict[str, Any]:
    if isinstance(content, Path):
        return {"sha256": sha256(content), "size": content.stat().st_size}
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def write_manifest(folder: Path, about: About, bundles: Mapping[str, dict[str, Any]]) -> None:
    manifest = {
        "version": about.version,
        "commit": about.commit,
        "modified": about.is_modified,
        "python": about.python,
        "machine": about.machine,
        "oldest_reader": about.oldest_reader,
        "bundles": bundles,
    }
    text = json.dumps(manifest, indent=1, sort_keys=True)
    (folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8")
