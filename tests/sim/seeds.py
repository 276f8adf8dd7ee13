"""How much of a repetition `make test` runs: its first values, while `make test-long` runs the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

Value = TypeVar("Value")


def first_of(count: int, values: Iterable[Value]) -> list[Value | ParameterSet]:
    """Values to parametrize a test with, of which all but the first `count` are long."""
    return [
        value if number < count else pytest.param(value, marks=pytest.mark.long)
        for number, value in enumerate(values)
    ]
