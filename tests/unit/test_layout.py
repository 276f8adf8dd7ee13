"""Tests of one module are found by its name: their folders are those of the sources."""

from __future__ import annotations

from pathlib import Path

import pytest

UNIT = Path(__file__).parent
CHECKOUT = UNIT.parents[1]
SOURCES = {
    "broker": CHECKOUT / "broker" / "headrace" / "broker",
    "mirror": CHECKOUT / "mirror" / "headrace" / "mirror",
    "pipeline": CHECKOUT / "pipeline" / "headrace",
}
FILES = sorted(file for folder in SOURCES for file in (UNIT / folder).rglob("test_*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(UNIT)))
def test_a_test_is_named_for_a_module_of_the_folder_it_mirrors(file: Path) -> None:
    root, *folders = file.parent.relative_to(UNIT).parts
    source = SOURCES[root].joinpath(*folders)
    modules = {entry.stem for entry in source.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    name = file.stem.removeprefix("test_")
    assert any(name == module or name.startswith(f"{module}_") for module in modules), (
        f"{file.relative_to(CHECKOUT)}: {source.relative_to(CHECKOUT)} has no module that begins its name"
    )
