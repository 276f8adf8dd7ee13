"""How much of a repetition `make test` runs: its first values, while `make test-long` runs the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

Value = TypeVar("Value")


def first_of(count: int, values: Iterable[Value]) -> list[Value | ParameterSet]:
    """Values to parametrize a test with, or tuples of them, of which all but the first `count` are long."""
    return [value if number < count else long(value) for number, value in enumerate(values)]


def long(value: object) -> ParameterSet:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.long)
