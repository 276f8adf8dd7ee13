"""Bundles of a release have the same bytes however and whenever they are made, and the manifest names every file's hash."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

from release_bundles import MANIFEST, About, write_bundle, write_manifest


def made(folder: Path, mode: int, time: int) -> Path:
    folder.mkdir()
    source = folder / "some.jar"
    source.write_bytes(b"classes")
    source.chmod(mode)
    os.utime(source, (time, time))
    members: dict[str, Path | bytes] = {"zookeeper/some.jar": source, "requirements.txt": b"a==1\n"}
    names = members if mode == 0o600 else dict(reversed(members.items()))
    entry = write_bundle(folder / "one.tar", names)
    about = About(
        version="1.0", commit="abc", is_modified=False, python="3.11", machine="x86_64", oldest_reader="1.0"
    )
    write_manifest(folder, about, {"one": entry})
    return folder


def test_two_builds_are_equal(tmp_path: Path) -> None:
    first, second = made(tmp_path / "first", 0o600, 1), made(tmp_path / "second", 0o755, 2_000_000_000)
    for name in ("one.tar", MANIFEST):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_the_manifest_tells_the_size_and_hash_of_bundles_and_of_their_files(tmp_path: Path) -> None:
    folder = made(tmp_path / "made", 0o644, 1)
    bundle = json.loads((folder / MANIFEST).read_text())["bundles"]["one"]
    content = (folder / "one.tar").read_bytes()
    assert (bundle["file"], bundle["size"]) == ("one.tar", len(content))
    assert bundle["sha256"] == hashlib.sha256(content).hexdigest()
    with tarfile.open(folder / "one.tar") as tar:
        assert [member.name for member in tar] == ["requirements.txt", "zookeeper/some.jar"]
        for member in tar:
            data = tar.extractfile(member)
            assert data is not None
            assert bundle["files"][member.name] == {
                "sha256": hashlib.sha256(data.read()).hexdigest(),
                "size": member.size,
            }
            assert (member.uid, member.gid, member.mode, member.uname) == (0, 0, 0o644, "")
