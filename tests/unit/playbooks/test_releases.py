"""What a host makes of bundles: which it lacks, what it takes from them, and which releases may go."""

from __future__ import annotations

import hashlib
import io
import json
import os
import py_compile
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

releases = load("ansible.module_utils.headrace_releases")


def bundle(*names: str, text: str = "pins") -> dict[str, Any]:
    files = {name: {"sha256": f"digest of {name}"} for name in names}
    return {"file": "some.tar", "files": {**files, "requirements.txt": {"sha256": text}}}


BUNDLES = {
    "audit": bundle("wheels/a", "wheels/b", text="of the audit"),
    "load": bundle("wheels/a", "wheels/b", "wheels/spark", text="of the load"),
    "registry": bundle("wheels/a", "wheels/web", text="of the registry"),
}


def test_a_bundle_whose_archives_others_have_is_not_sent() -> None:
    assert set(releases.covering(BUNDLES, ["load", "audit"])) == {"load"}
    assert set(releases.covering(BUNDLES, ["registry", "audit"])) == {"registry", "audit"}
    assert set(releases.covering(BUNDLES, ["audit"])) == {"audit"}
    assert releases.covering({"one": bundle("a"), "same": bundle("a")}, ["one", "same"]).keys() == {"same"}
    assert releases.covering(BUNDLES, []) == {}


def test_a_host_has_a_bundle_when_every_archive_of_it_is_installed() -> None:
    stamp = {"files": releases.archives({"load": BUNDLES["load"]})}
    assert releases.has_all(stamp, {"audit": BUNDLES["audit"]})
    assert not releases.has_all(stamp, {"registry": BUNDLES["registry"]})
    assert not releases.has_all(None, {"audit": BUNDLES["audit"]})


def test_another_content_under_the_same_name_is_told_from_what_is_only_more() -> None:
    stamp = {"files": {"wheels/a": "digest of wheels/a", "wheels/b": "another"}}
    assert releases.contradictions(stamp, BUNDLES) == ["wheels/b"]


def test_the_pins_of_several_bundles_are_each_there_once() -> None:
    assert releases.merged_requirements(["b==1\na==1\n", "c==1\nb==1\n"]) == "a==1\nb==1\nc==1\n"


def tar_of(path: Path, *members: tarfile.TarInfo) -> dict[str, Any]:
    with tarfile.open(path, "w") as tar:
        for member in members:
            member.size = 4 if member.isreg() else 0
            tar.addfile(member, io.BytesIO(b"text"))
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "files": {"in": {}}}


def test_a_bundle_with_another_digest_is_refused(tmp_path: Path) -> None:
    described = tar_of(tmp_path / "one.tar", tarfile.TarInfo("in"))
    releases.check_digest(tmp_path / "one.tar", described)
    with (tmp_path / "one.tar").open("r+b") as file:
        file.seek(600)
        file.write(b"T")
    with pytest.raises(
        releases.ReleaseError, match=r"one\.tar arrived with SHA-256 .*: nothing was installed"
    ):
        releases.check_digest(tmp_path / "one.tar", described)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE])
def test_a_bundle_brings_only_files_that_the_manifest_names(tmp_path: Path, kind: bytes) -> None:
    strange = tarfile.TarInfo("../out" if kind == tarfile.REGTYPE else "in")
    strange.type, strange.linkname = kind, "/etc"
    described = tar_of(tmp_path / "one.tar", strange)
    with pytest.raises(releases.ReleaseError, match="of which the manifest says nothing"):
        releases.unpack(tmp_path / "one.tar", described, tmp_path / "unpacked")
    assert not (tmp_path / "out").exists()


def test_programs_name_the_folder_that_they_will_be_in(tmp_path: Path) -> None:
    made = tmp_path / ".making-1"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "headrace").write_text(f"#!{made}/bin/python\n")
    (made / "bin" / "python").symlink_to(sys.executable)
    (made / "pyvenv.cfg").write_text(f"command = python -m venv {made}\n")
    releases.relocate(str(made), "/opt/headrace/releases/1.0")
    assert (made / "bin" / "headrace").read_text() == "#!/opt/headrace/releases/1.0/bin/python\n"
    assert (made / "pyvenv.cfg").read_text() == "command = python -m venv /opt/headrace/releases/1.0\n"
    assert (made / "bin" / "python").is_symlink()


def test_a_folder_takes_the_place_of_another_in_one_step(tmp_path: Path) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").write_text(name)
    releases.put(str(tmp_path / "new"), str(tmp_path / "old"))
    assert (tmp_path / "old" / "content").read_text() == "new"
    assert (tmp_path / "new" / "content").read_text() == "old"


def test_bytecode_that_a_full_disk_cut_short_is_removed(tmp_path: Path) -> None:
    for name in ("whole", "cut", "empty"):
        (tmp_path / f"{name}.py").write_text("numbers = [1, 2, 3]\n")
    made = {
        path.stem: Path(str(py_compile.compile(str(path), doraise=True))) for path in tmp_path.glob("*.py")
    }
    os.truncate(made["cut"], made["cut"].stat().st_size - 20)
    os.truncate(made["empty"], 0)
    releases.remove_broken_bytecode(sys.executable, str(tmp_path))
    assert {name for name, path in made.items() if path.exists()} == {"whole"}


def installed(home: Path, *versions: str) -> None:
    """Install these, the oldest first."""
    for age, version in enumerate(versions):
        folder = home / "releases" / version
        folder.mkdir(parents=True)
        (folder / "release.json").write_text(json.dumps({"version": version}))
        os.utime(folder / "release.json", (age, age))


def test_the_newest_releases_stay_and_the_wanted_one(tmp_path: Path) -> None:
    installed(tmp_path, "1.0", "1.1", "1.2", "1.3", "1.4")
    (tmp_path / "releases" / ".making-x").mkdir()
    assert releases.removable(str(tmp_path), "1.4", 3) == ["1.0", "1.1"]
    assert releases.removable(str(tmp_path), "1.0", 3) == ["1.1", "1.2"]
    assert releases.removable(str(tmp_path), "1.4", 1) == ["1.0", "1.1", "1.2", "1.3"]
    releases.remove(str(tmp_path), "1.0")
    releases.remove_leftovers(str(tmp_path))
    assert {path.name for path in (tmp_path / "releases").iterdir()} == {"1.1", "1.2", "1.3", "1.4"}


def test_the_current_release_stays_while_another_is_made_ready(tmp_path: Path) -> None:
    """An upgrade may have to go back to it, whatever its age."""
    installed(tmp_path, "1.0", "1.1", "1.2", "1.3", "1.4")
    releases.link_current(str(tmp_path), "1.0")
    assert releases.removable(str(tmp_path), "1.4", 2) == ["1.1", "1.2", "1.3"]
    assert releases.removable(str(tmp_path), "1.4", 3) == ["1.1", "1.2"]


def test_a_release_that_was_current_stays_before_one_that_was_taken_back(tmp_path: Path) -> None:
    installed(tmp_path, "1.0", "1.1", "1.2", "1.3", "1.4")
    releases.link_current(str(tmp_path), "1.1")
    releases.link_current(str(tmp_path), "1.3")
    assert releases.removable(str(tmp_path), "1.4", 3) == ["1.0", "1.2"]


def test_a_host_tells_its_releases_and_names_one_of_them(tmp_path: Path) -> None:
    look = load("headrace_installed")
    assert look.bring(str(tmp_path), None, False) == {
        "changed": False,
        "releases": [],
        "current": "",
        "diff": [],
    }
    folder = tmp_path / "releases" / "1.0"
    folder.mkdir(parents=True)
    (folder / "release.json").write_text(json.dumps({"version": "1.0", "oldest_reader": "0.9"}))
    assert look.bring(str(tmp_path), "1.0", True)["changed"]
    assert look.bring(str(tmp_path), "1.0", False)["changed"]
    again = look.bring(str(tmp_path), "1.0", False)
    assert (again["changed"], again["current"]) == (False, "1.0")
    assert again["releases"] == [{"version": "1.0", "oldest_reader": "0.9", "runs": False}]


def test_a_release_that_something_runs_from_stays(tmp_path: Path) -> None:
    installed(tmp_path, "1.0", "1.1", "1.10")
    program = tmp_path / "releases" / "1.1" / "cat"
    program.symlink_to("/bin/cat")
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"ready\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        assert releases.users(str(program.parent)) == [f"process {process.pid}"]
        assert releases.removable(str(tmp_path), "1.10", 1) == ["1.0"]
    finally:
        process.kill()
        process.communicate()


def test_current_is_replaced_and_never_missing(tmp_path: Path) -> None:
    assert releases.current_of(str(tmp_path)) is None
    installed(tmp_path, "1.0", "1.1")
    (tmp_path / "current.new").symlink_to("what an interrupted run left")
    for version in ("1.0", "1.1"):
        releases.link_current(str(tmp_path), version)
        assert releases.current_of(str(tmp_path)) == f"releases/{version}"


def test_a_python_that_the_release_is_not_for_is_refused() -> None:
    with pytest.raises(releases.ReleaseError, match=r"The release is for Python 2\.7 on vax, and .* on "):
        releases.checked_pip(sys.executable, {"python": "2.7", "machine": "vax"})
    with pytest.raises(releases.ReleaseError, match=r"python-of-nobody is not installed"):
        releases.checked_pip("python-of-nobody", {"python": "2.7", "machine": "vax"})
