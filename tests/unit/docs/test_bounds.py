"""docs/bounds.md lists every bound of the code with its value and a reason, and none that is gone."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "bounds.md").read_text(encoding="utf-8")
LISTED, _, NOT_OURS = PAGE.partition("## What is no bound of ours")
ROWS = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| ([^|]+) \|$", LISTED, re.MULTILINE)
BYTES = {"SIZE", "COPIED"}
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
SECONDS = {"MS": 0.001, "S": 1.0, "SECONDS": 1.0}


def bounds() -> Iterator[tuple[str, str, object]]:
    """(module, name, value) of every constant whose name says that it is the most of something."""
    for root in ("broker", "mirror", "pipeline"):
        for file in (ROOT / root / "headrace").rglob("*.py"):
            names = [name for name in constants(file) if "MAX" in name.split("_")]
            if names:
                dotted = file.relative_to(ROOT / root).with_suffix("").parts
                module = importlib.import_module(".".join(dotted).removesuffix(".__init__"))
                yield from ((file.stem, name, getattr(module, name)) for name in names)


def constants(file: Path) -> Iterator[str]:
    """The names that a module assigns at its top."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (part.id for part in parts if isinstance(part, ast.Name))


def written(name: str, value: object) -> str:
    """The value as the page has it, with the unit that the name tells."""
    if not isinstance(value, int | float):
        return "by codec"
    words = name.split("_")
    for word, seconds in SECONDS.items():
        if word in words:
            time_ms = round(value * seconds * 1000)
            return f"{time_ms // 1000:,} s" if time_ms % 1000 == 0 else f"{time_ms:,} ms"
    for size, unit in UNITS if BYTES.intersection(words) else ():
        if value >= size and value % size == 0:
            return f"{value / size:g} {unit}"
    return f"{value:,}"


def test_every_bound_has_its_value_and_a_reason_or_is_no_bound_of_ours() -> None:
    listed = {name: value for name, value, _ in ROWS}
    not_ours = set(re.findall(r"`(\w+)`", NOT_OURS))
    ours = [bound for bound in bounds() if bound[1] not in not_ours]
    modules = Counter(name for _, name, _ in ours)
    found = {
        name if modules[name] == 1 else f"{module}.{name}": written(name, value)
        for module, name, value in ours
    }
    assert listed == found, (
        "write the bound, its value and the reason into docs/bounds.md, or take the bound away"
    )
    assert len(ROWS) == len(listed)
    assert all(reason.endswith(".") for _, _, reason in ROWS)


def test_what_is_no_bound_of_ours_is_there() -> None:
    assert set(re.findall(r"`(\w+)`", NOT_OURS)) <= {name for _, name, _ in bounds()}
