"""The names that a second try is given."""

from __future__ import annotations

import failed_tests
import pytest


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("tests/a.py::test_x@alone", "tests/a.py::test_x"),
        ("tests/a.py::test_x[mirror.md]@test_e2e_docs", "tests/a.py::test_x[mirror.md]"),
        ("tests/a.py::test_x[b@c d]", "tests/a.py::test_x[b@c d]"),
        ("tests/a.py::test_x", "tests/a.py::test_x"),
    ],
)
def test_a_name_has_no_group(told: str, name: str) -> None:
    assert failed_tests.plain(told) == name
