"""The marks of drained hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

marks = load("ansible.module_utils.headrace_marks")
module = load("headrace_mark")
MARK = {"who": "ana", "why": "its disk is replaced", "since": "2026-11-23T08:30:00Z"}
SENTENCE = "east-1 is drained since 2026-11-23T08:30:00Z by ana: its disk is replaced"


def run(folder: Path, state: str, *, check_mode: bool = False, **changes: str) -> dict[str, Any]:
    arguments = {"config_dir": str(folder), "host": "east-1", "state": state, **MARK, **changes}
    found: dict[str, Any] = module.run(arguments, check_mode)
    return found


def test_a_host_is_drained_from_its_mark_on_until_that_is_taken_away(tmp_path: Path) -> None:
    nobody: dict[str, str] = {}
    unmarked = {"changed": False, "drained": False, "sentence": "", "sentences": nobody}
    assert run(tmp_path, "told") == unmarked
    assert run(tmp_path, "present") == {"changed": True, "drained": True, "sentence": SENTENCE}
    marked = {"changed": False, "drained": True, "sentence": SENTENCE, "sentences": {"east-1": SENTENCE}}
    assert run(tmp_path, "told") == marked
    assert marks.read_all(str(tmp_path)) == [marks.Mark(host="east-1", **MARK)]
    assert run(tmp_path, "absent") == {"changed": True, "drained": False, "sentence": ""}
    assert run(tmp_path, "absent")["changed"] is False
    assert marks.read_all(str(tmp_path)) == []


def test_who_drains_it_again_for_the_same_reason_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path, "present")
    again = run(tmp_path, "present", since="2026-12-24T00:00:00Z")
    assert again == {"changed": False, "drained": True, "sentence": SENTENCE}
    other = run(tmp_path, "present", who="bo", since="2026-12-24T00:00:00Z")
    assert other["changed"] is True
    assert "since 2026-12-24T00:00:00Z by bo" in run(tmp_path, "told")["sentence"]


def test_check_mode_says_what_would_be(tmp_path: Path) -> None:
    would = run(tmp_path, "present", check_mode=True)
    assert would["sentence"] == "east-1 would be drained by ana: its disk is replaced"
    run(tmp_path, "present")
    assert run(tmp_path, "present", check_mode=True)["sentence"] == SENTENCE


@pytest.mark.parametrize("state", ["present", "absent"])
def test_check_mode_tells_what_would_change_and_changes_nothing(tmp_path: Path, state: str) -> None:
    if state == "absent":
        run(tmp_path, "present")
    before = marks.read_all(str(tmp_path))
    assert run(tmp_path, state, check_mode=True)["changed"] is True
    assert marks.read_all(str(tmp_path)) == before


def test_what_is_no_mark_is_refused_and_replaced_by_one(tmp_path: Path) -> None:
    path = Path(marks.path_of(str(tmp_path), "east-1"))
    path.parent.mkdir()
    for text in ("{", "[]", '{"host": "east-1"}'):
        path.write_text(text)
        with pytest.raises(marks.MarkError, match="is no mark of a drained host"):
            marks.read(str(path))
    assert run(tmp_path, "present")["changed"] is True
    assert run(tmp_path, "told")["drained"] is True
