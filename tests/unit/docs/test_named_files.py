"""Each file, folder and function that the pages for contributors name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = ("CONTRIBUTING.md", "docs/architecture.md")
TREES = ("broker", "mirror", "pipeline", "playbooks", "tests", "scripts")
"""Where a file may lie of which a page says the name alone."""
BASES = (
    "",
    "broker/headrace/broker",
    "mirror/headrace",
    "mirror/headrace/mirror",
    "pipeline/headrace",
    "playbooks",
    "docs",
)
"""What a path may be relative to: the pages leave out what all files of a part have in common."""
ANY_KEY = ("kNN_name", "k[0-9][0-9]_*")


def named(page: str) -> list[str]:
    """The code spans of a page that are paths, and the folders in its drawings."""
    text = (ROOT / page).read_text(encoding="utf-8")
    drawings = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\s]+)`", prose)
    folders = [name for drawing in drawings for name in re.findall(r"[a-z_/]+/(?![a-z])", drawing)]
    return [name for name in spans if is_path(name)] + folders


def is_path(span: str) -> bool:
    return re.fullmatch(r"[\w.-]*/[\w./-]+|\w+\.py", span) is not None


def is_there(name: str) -> bool:
    """Whether there is such a file, with or without its suffix, or such a function of a module, as in `a/module.function`."""
    pattern = name.rstrip("/").replace(*ANY_KEY)
    if "/" not in name:
        return any(any((ROOT / tree).rglob(pattern)) for tree in TREES)
    stem, _, function = pattern.rpartition(".")
    for base in BASES:
        if any((ROOT / base).glob(pattern)) or any((ROOT / base).glob(f"{pattern}.py")):
            return True
        module = ROOT / base / f"{stem}.py"
        if stem and module.is_file() and function in defined(module):
            return True
    return False


def defined(module: Path) -> set[str]:
    """Every function, method and class of a module."""
    nodes = ast.walk(ast.parse(module.read_text(encoding="utf-8")))
    return {
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    names = named(page)
    assert len(names) > 10
    assert [name for name in names if not is_there(name)] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log/segment", True),
        ("log/segment.py", True),
        ("handlers/kNN_name.py", True),
        ("groups/machine.decide", True),
        ("groups/machine.nothing", False),
        ("log/nothing.py", False),
        ("nothing/", False),
        ("structured_log.py", True),
        ("nothing.py", False),
    ],
)
def test_a_name_is_looked_up(name: str, expected: bool) -> None:
    assert is_there(name) is expected
