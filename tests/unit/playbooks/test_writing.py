"""Files with secrets: their rights, and what is shown of them."""

from __future__ import annotations

import grp
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

writing = load("ansible.module_utils.headrace_writing")
fingerprint = load("ansible.module_utils.headrace_fingerprint")
GROUP = grp.getgrgid(os.getgid()).gr_name


def secret(path: Path, content: str = "key=canary\n", group: str = GROUP) -> dict[str, Any]:
    (file,) = writing.secret_files({path.name: content}, str(path.parent), group)
    found: dict[str, Any] = file
    return found


def test_a_secret_is_written_for_its_group_and_shown_nowhere(tmp_path: Path) -> None:
    file = secret(tmp_path / "catalog.secret")
    shown = writing.differences([], [file])
    assert "canary" not in str(shown)
    writing.write([], [file], None)
    path = tmp_path / "catalog.secret"
    assert (path.read_text(), path.stat().st_mode & 0o777, path.stat().st_gid) == (
        "key=canary\n",
        0o640,
        os.getgid(),
    )
    assert writing.differences([], [file]) == []
    assert "canary" not in str(writing.differences([], [secret(path, "key=other\n")]))


def test_rights_alone_are_put_right(tmp_path: Path) -> None:
    file = secret(tmp_path / "secret")
    writing.write([], [file], None)
    (tmp_path / "secret").chmod(0o644)
    assert len(writing.differences([], [file])) == 1
    writing.write([], [file], None)
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o640


def test_a_group_that_is_not_there_is_named_before_anything_is_written(tmp_path: Path) -> None:
    file = secret(tmp_path / "secret", group="no-such-group")
    assert len(writing.differences([], [file])) == 1
    with pytest.raises(writing.FilesError, match="There is no group 'no-such-group' on this host"):
        writing.write([], [file], None)
    assert not (tmp_path / "secret").exists()


def test_a_secret_that_nobody_wants_any_more_is_found_and_nothing_else(tmp_path: Path) -> None:
    for name in ("old.secret", "catalog.secret", "key.pem"):
        (tmp_path / name).touch()
    assert writing.unwanted_secrets({"catalog.secret": ""}, str(tmp_path)) == [str(tmp_path / "old.secret")]
    assert writing.unwanted_secrets({}, None) == []


def test_a_fingerprint_tells_which_writing_of_a_secret_it_is_and_no_digest(tmp_path: Path) -> None:
    definition = {"path": "/etc/systemd/system/headrace-load.service", "content": "[Service]"}

    def wanted(content: str) -> str:
        text: str = fingerprint.wanted(definition, [], [secret(tmp_path / "catalog.secret", content)], "/")
        return text

    assert "not written yet  " in wanted("key=a")
    writing.write([], [secret(tmp_path / "catalog.secret", "key=a")], None)
    first = wanted("key=a")
    assert "not written yet  " in wanted("key=b")
    asked = ["stat", "-c", "%i %.9Y  %n", str(tmp_path / "catalog.secret")]
    assert (
        first.splitlines()[1]
        == subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    )
    for content in ("key=b", "key=a"):
        writing.write([], [secret(tmp_path / "catalog.secret", content)], None)
    assert wanted("key=a") != first
    assert hashlib.sha256(b"key=a").hexdigest() not in wanted("key=a")


def test_a_new_content_is_looked_at_beside_the_files_that_it_names(tmp_path: Path) -> None:
    """As they will be, and before any of them is there; a complaint names them as they will be called."""
    settings, key = tmp_path / "server.properties", tmp_path / "key.secret"
    check = 'sh -c \'test "$(cat $(cut -d= -f2 $0))" = "key=canary" || {{ echo $(cut -d= -f2 $0) is wrong; exit 1; }}\' %s'
    file = {
        "path": str(settings),
        "content": f"key={key}\n",
        "mode": "0644",
        "validate": check.replace("{{", "{").replace("}}", "}"),
    }
    writing.write([], [file, secret(key)], None)
    assert settings.read_text() == f"key={key}\n"
    with pytest.raises(writing.FilesError, match=f"{key} is wrong") as told:
        writing.write([], [file, secret(key, "key=other\n")], None)
    assert "other" not in str(told.value)
    assert key.read_text() == "key=canary\n"
