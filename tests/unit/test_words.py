"""One word for a thing: what is called so is defined once in the whole tree."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREES = ("bench", "broker", "demo", "mirror", "pipeline", "playbooks", "scripts", "tests")
WORDS = ("Connection", "Finding", "PartitionKey", "Place", "TopicPartition")
DEFINITION = re.compile(rf"^(class )?({'|'.join(WORDS)})\b", re.MULTILINE)
"""How a line begins that may define one; files without such a line need no parsing."""


def test_a_word_is_defined_once() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in (file for tree in TREES for file in (ROOT / tree).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.parse(text).body if DEFINITION.search(text) else ():
            for name in defined(node):
                found[name].append(str(file.relative_to(ROOT)))
    assert {word: found[word] for word in WORDS if len(found[word]) != 1} == {}


def defined(node: ast.stmt) -> list[str]:
    """The class, or the names, that a statement at a module's top defines."""
    if isinstance(node, ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]
