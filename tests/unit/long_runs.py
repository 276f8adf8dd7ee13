"""Which values of a test `make test` runs, and which `make test-acceptance` or `make test-long`."""

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
    return marked(value, pytest.mark.long)


def acceptance(value: object) -> ParameterSet:
    return marked(value, pytest.mark.acceptance)


def marked(value: object, mark: pytest.MarkDecorator) -> ParameterSet:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=mark)
