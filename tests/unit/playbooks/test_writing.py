"""Files with secrets: their rights, and what is shown of them."""

from __future__ import annotations

import grp
import os
from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

writing = load("ansible.module_utils.headrace_writing")
GROUP = grp.getgrgid(os.getgid()).gr_name


def secret(path: Path, content: str = "key=canary\n", **options: Any) -> dict[str, Any]:
    return {
        "path": str(path),
        "secret_content": content,
        "content": None,
        "mode": "0640",
        "group": GROUP,
        **options,
    }


def test_a_secret_is_written_for_its_group_and_shown_nowhere(tmp_path: Path) -> None:
    file = secret(tmp_path / "catalog.properties")
    shown = writing.differences([], [file])
    assert "canary" not in str(shown)
    writing.write([], [file], None)
    path = tmp_path / "catalog.properties"
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
