"""A module's program with bytecode: it says what it said before, and compiles nothing of what lies here."""

from __future__ import annotations

import base64
import io
import marshal
import subprocess
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from headrace_inventory.asking import PLAYBOOKS, SOURCES
from headrace_inventory.bytecode import ARCHIVE, HEADER, with_bytecode

SYNTHESIZED = {"ansible/__init__.py", "ansible/module_utils/__init__.py", "ansible/legacy/__init__.py"}
"""What Ansible writes into an archive itself."""


BUILD = """
import sys
from pathlib import Path
from ansible.executor.module_common import modify_module
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader, module_utils_loader
from ansible.template import Templar

init_plugin_loader()
module_utils_loader.add_directory(str(Path("playbooks/module_utils").absolute()))
built = modify_module(
    module_name="headrace_look",
    module_path=str(Path("playbooks/library/headrace_look.py").absolute()),
    module_args={"commands": []},
    templar=Templar(DataLoader()),
    task_vars={"ansible_python_interpreter": sys.executable},
)
sys.stdout.buffer.write(built.b_module_data)
"""


def archive_in(program: bytes) -> zipfile.ZipFile:
    found = ARCHIVE.search(program)
    assert found
    return zipfile.ZipFile(io.BytesIO(base64.b64decode(found.group())))


def said_by(program: bytes, *arguments: str) -> bytes:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, input=program, capture_output=True, check=True, cwd=PLAYBOOKS.parent)
    return done.stdout


def test_what_ansible_makes_of_a_module_says_the_same_and_has_all_bytecode(tmp_path: Path) -> None:
    program = said_by(BUILD.encode())
    made = with_bytecode(program, SOURCES, tmp_path)
    names = set(archive_in(made).namelist())
    sources = set(archive_in(program).namelist())
    assert sources >= {"ansible/legacy/headrace_look.py", "ansible/module_utils/basic.py"} | SYNTHESIZED
    assert names == sources | {f"{name}c" for name in sources - SYNTHESIZED}
    assert said_by(made) == said_by(program) != b""


def program_of(sources: dict[str, str]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, source in sources.items():
            file.writestr(name, source)
    return b"main(\nzip_data='" + base64.b64encode(archive.getvalue()) + b"',\n)\n"


def test_only_a_source_that_lies_here_gets_its_bytecode(tmp_path: Path) -> None:
    for name in ("same", "other"):
        (tmp_path / f"{name}.py").write_text("NUMBER = 1\n")
    program = program_of(
        {"of/same.py": "NUMBER = 1\n", "of/other.py": "NUMBER = 2\n", "of/none.py": "", "in/same.py": ""}
    )
    made = archive_in(with_bytecode(program, {"of/": (tmp_path / "nowhere", tmp_path)}, tmp_path))
    assert {name for name in made.namelist() if name.endswith("c")} == {"of/same.pyc"}
    bytecode = made.read("of/same.pyc")
    assert bytecode.startswith(HEADER)
    values: dict[str, int] = {}
    exec(marshal.loads(bytecode[len(HEADER) :]), values)
    assert values["NUMBER"] == 1


def test_another_python_takes_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace_inventory.bytecode.HEADER", b"\0" * len(HEADER))
    (tmp_path / "same.py").write_text("NUMBER = 1\n")
    made = with_bytecode(program_of({"same.py": "NUMBER = 1\n"}), {"": (tmp_path,)}, tmp_path)
    file = tmp_path / "archive.zip"
    assert archive_in(made).namelist() == ["same.py", "same.pyc"]
    found = ARCHIVE.search(made)
    assert found
    file.write_bytes(base64.b64decode(found.group()))
    values: dict[str, int] = {}
    exec(zipimport.zipimporter(str(file)).get_code("same"), values)
    assert values["NUMBER"] == 1


def test_what_was_made_once_is_taken_again(tmp_path: Path) -> None:
    source = tmp_path / "same.py"
    source.write_text("NUMBER = 1\n")
    program = program_of({"same.py": "NUMBER = 1\n"})
    made = with_bytecode(program, {"": (tmp_path,)}, tmp_path)
    source.unlink()
    assert with_bytecode(program, {"": (tmp_path,)}, tmp_path) == made != program


def test_a_program_of_another_form_stays_as_it_is(tmp_path: Path) -> None:
    assert with_bytecode(b"#!/bin/sh\n", SOURCES, tmp_path) == b"#!/bin/sh\n"
    assert not list(tmp_path.iterdir())
