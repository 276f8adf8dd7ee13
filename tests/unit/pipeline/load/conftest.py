"""What the tests of tables share: a real catalog in a temporary folder, and a run of the load that lives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from headrace.load import tables
from headrace.load.leftovers import Run


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return tables.open_catalog(str(tmp_path / "a warehouse, né Ünit"))


@pytest.fixture
def run() -> Iterator[Run]:
    living = Run()
    yield living
    living.close()
